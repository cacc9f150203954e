// swap script|loader TRIES: tries to have another file opened for a start than was judged. `script`: a thread moves the
// working directory under the name of a script. `loader`: another process moves the link by which tools/prog names its
// loader, and looks for what is in a denied one.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char tools[4096], mine[4096];
static volatile int go;
static unsigned delay;
static int ok, evil, refused, killed, other, read_it;
static void spin(unsigned n) { for (volatile unsigned i = 0; i < n; i++); }

static void *move(void *unused) {
    (void)unused;
    while (!go);
    spin(delay);
    chdir(mine);
    for (;;) pause();
}

static void count(int status) {
    if (WIFSIGNALED(status)) killed++;
    else switch (WEXITSTATUS(status)) {
        case 0: ok++; break;
        case 42: evil++; break;
        case 77: refused++; break;
        default: other++;
    }
}

static void script(void) {
    char *words[] = {"a.sh", NULL};
    pthread_t thread;
    chdir(tools);
    pthread_create(&thread, NULL, move, NULL);
    usleep(300);
    go = 1;
    execve("a.sh", words, NULL);
    _exit(errno == EACCES ? 77 : 78);
}

static void flip(void) {
    for (int side = 0;; side ^= 1) {
        symlink(side ? "../bin/okay" : "../bin/plain.env", "mine/next");
        rename("mine/next", "mine/ld");
        spin(rand() % 20000);
    }
}

// What is mapped into a process from a file of that name.
static void look(pid_t child) {
    char path[64], line[512], page[4096];
    unsigned long from, to;
    sprintf(path, "/proc/%d/maps", child);
    FILE *maps = fopen(path, "r");
    while (maps && fgets(line, sizeof line, maps)) {
        if (!strstr(line, ".env") || sscanf(line, "%lx-%lx", &from, &to) != 2) continue;
        sprintf(path, "/proc/%d/mem", child);
        int memory = open(path, O_RDONLY);
        if (memory >= 0 && pread(memory, page, sizeof page, from) > 0) read_it++;
        if (memory >= 0) close(memory);
    }
    if (maps) fclose(maps);
}

int main(int words, char **argv) {
    int tries = atoi(argv[2]), by_script = !strcmp(argv[1], "script");
    pid_t flipper = 0;
    getcwd(tools, sizeof tools - 8);
    strcpy(mine, tools), strcat(tools, "/tools"), strcat(mine, "/mine");
    if (!by_script && !(flipper = fork())) flip();
    for (int i = 0; i < tries; i++) {
        delay = rand() % 3000000;
        pid_t child = fork();
        if (!child && by_script) script();
        if (!child) {
            char *program[] = {"prog", NULL};
            execve("tools/prog", program, NULL);
            _exit(errno == EACCES ? 77 : 78);
        }
        int status;
        while (!waitpid(child, &status, by_script ? 0 : WNOHANG)) look(child);
        count(status);
    }
    if (flipper) kill(flipper, SIGKILL), waitpid(flipper, NULL, 0);
    if (evil) printf("ESCAPED: evil ran %d times\n", evil);
    if (read_it) printf("ESCAPED: what is denied was read %d times\n", read_it);
    printf("ok=%d refused=%d killed=%d other=%d\ndone\n", ok, refused, killed, other);
    return words == 3 ? 0 : 1;
}
