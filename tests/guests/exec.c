// exec MODE TRIES: tries to start something else than what was judged. Copies of this program are
// the programs: `show` may start with the argument "good" alone, `evil` may not start at all.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct shared {
    char path[32], arg[16], good[16], evil[16];
    char *volatile argv[4];
    volatile int stop;
};
static struct shared *s;
static const char *mode;
static int is(const char *name) { return strcmp(mode, name) == 0; }
static void spin(unsigned n) { for (volatile unsigned i = 0; i < n; i++); }

static void *flip(void *seed) {
    unsigned random = (unsigned)(unsigned long)seed | 1;
    for (int side = 0; !s->stop; side ^= 1) {
        if (is("path") || is("thread")) *(volatile int *)(s->path + 8) = *(const int *)(side ? "show" : "evil");
        if (is("argv")) *(volatile int *)s->arg = *(const int *)(side ? "good" : "evil");
        if (is("pointer") || is("rewrite")) s->argv[1] = side ? s->good : s->evil;
        random = random * 1103515245 + 12345;
        spin((random >> 16) % 3000);
    }
    return NULL;
}

static int ok, evil, refused, killed, other;

static void count(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) killed++;
    else switch (WEXITSTATUS(status)) {
        case 0: ok++; break;
        case 42: evil++; break;
        case 77: refused++; break;
        default: other++;
    }
}

static void race(int tries) {
    pid_t flipper = 0;
    if (!is("thread") && !(flipper = fork())) flip((void *)(long)getpid()), _exit(0);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < tries; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > (tries > 10000 ? 400 : 25)) break;
        pid_t child = is("thread") ? fork() : vfork();
        if (!child) {
            pthread_t thread;
            if (is("thread")) {
                s->stop = 0;
                pthread_create(&thread, NULL, flip, (void *)(long)(i * 7919 + 1));
                spin(rand() % 20000);
            }
            execve(s->path, (char **)s->argv, NULL);
            _exit(errno == EACCES ? 77 : 78);
        }
        count(child);
    }
    if (flipper) kill(flipper, SIGKILL), waitpid(flipper, NULL, 0);
}

// A sibling waits for the new image's stack and writes the allowed word over the forbidden one.
static void rewrite(int tries, int through_proc) {
    int fresh = 0;
    pid_t flipper = fork();
    if (!flipper) flip((void *)(long)getpid()), _exit(0);
    for (int i = 0; i < tries; i++) {
        int gate[2];
        pipe(gate);
        pid_t child = fork();
        if (!child) {
            char byte;
            close(gate[1]);
            read(gate[0], &byte, 1);
            execve("./tools/show", (char **)s->argv, NULL);
            _exit(errno == EACCES ? 77 : 78);
        }
        char path[64], text[2048];
        sprintf(path, "/proc/%d/stat", child);
        int file = open(path, O_RDONLY);
        unsigned long first = 0;
        close(gate[0]), close(gate[1]);
        for (int k = 0; k < 300; k++) {
            int got = pread(file, text, sizeof text - 1, 0), field = 2;
            if (got <= 0) break;
            text[got] = 0;
            char *at = strrchr(text, ')') + 1;
            for (; *at && field < 48; at++) if (*at == ' ') field++;
            unsigned long now = strtoul(at, NULL, 10);
            if (!first) first = now;
            else if (now && now != first) {
                struct iovec local = {"good", 4}, remote = {(void *)(now + 5), 4};
                long wrote;
                fresh++;
                if (through_proc) {
                    sprintf(path, "/proc/%d/mem", child);
                    int memory = open(path, O_RDWR);
                    wrote = memory < 0 ? -1 : pwrite(memory, "good", 4, now + 5);
                } else wrote = process_vm_writev(child, &local, 1, &remote, 1, 0);
                if (wrote == 4) puts("ESCAPED: wrote into another process");
                break;
            }
        }
        close(file);
        count(child);
    }
    kill(flipper, SIGKILL), waitpid(flipper, NULL, 0);
    printf("fresh stacks seen: %d\n", fresh);
}

static int copy(const char *from, const char *to) {
    char block[65536];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755), got;
    if (in < 0 || out < 0) return -1;
    while ((got = read(in, block, sizeof block)) > 0) write(out, block, got);
    close(in), close(out);
    return 0;
}

static void start(const char *what, const char *path, char *const argv[], char *const environment[]) {
    int before = evil;
    pid_t child = fork();
    if (!child) execve(path, argv, environment), _exit(77);
    count(child);
    if (evil != before) printf("ESCAPED: %s\n", what);
}

static void start_at(const char *what, int directory, const char *path, char *const argv[], int flags) {
    int before = evil;
    pid_t child = fork();
    if (!child) syscall(SYS_execveat, directory, path, argv, NULL, flags), _exit(77);
    count(child);
    if (evil != before) printf("ESCAPED: %s\n", what);
}

static int moved(void *unused) {
    (void)unused;
    for (int i = 0; i < 2000; i++) chdir("/tmp/fake"), spin(500), chdir(s->path), spin(500);
    return 0;
}

static void tricks(void) {
    char *bad[] = {"evil", "evil", NULL}, *bad_show[] = {"show", "evil", NULL}, *none[] = {NULL};
    char *good[] = {"show", "good", NULL}, *as_other[] = {"sh", "good", NULL}, *empty[] = {"show", "", NULL};
    start("evil by its path", "./tools/evil", bad, NULL);
    start("forbidden arguments", "./tools/show", bad_show, NULL);
    start("no argv", "./tools/show", none, NULL);
    start("empty argument", "./tools/show", empty, NULL);
    start("another argv[0]", "./tools/show", as_other, NULL);
    char *variables[] = {"LD_PRELOAD=/tmp/x.so", "LD_AUDIT=x", "GCONV_PATH=/tmp", "BASH_ENV=x", "PYTHONSTARTUP=x", "NODE_OPTIONS=x",
                         "GIT_SSH_COMMAND=x", "PERL5OPT=x", "JAVA_TOOL_OPTIONS=x", "LD_LIBRARY_PATH=."};
    for (unsigned i = 0; i < sizeof variables / sizeof *variables; i++) {
        char *environment[] = {variables[i], NULL};
        int before = ok;
        start(variables[i], "./tools/show", good, environment);
        if (ok != before) printf("ESCAPED: pinned arguments with %s\n", variables[i]);
    }
    start("the allowed start", "./tools/show", good, NULL);
    if (!ok) puts("ESCAPED: not at all, but the allowed start fails");
    const char *copies[] = {"out/show", "/tmp/show", "/dev/shm/show", "/var/tmp/show", "/run/show"};
    for (unsigned i = 0; i < sizeof copies / sizeof *copies; i++) {
        copy("tools/evil", copies[i]);
        start(copies[i], copies[i], bad, NULL);
        char *by_loader[] = {"ld", (char *)copies[i], "evil", NULL};
        start("the loader", "/lib64/ld-linux-x86-64.so.2", by_loader, NULL);
    }
    if (link("tools/evil", "out/linked") == 0) start("a hard link", "out/linked", bad, NULL);
    symlink("../tools/evil", "out/show2");
    start("a link to evil", "out/show2", bad, NULL);
    setenv("PATH", "./out:/tmp", 1);
    pid_t child = fork();
    if (!child) execvp("show", bad), _exit(77);
    count(child);
    int memory = memfd_create("show", 0), program = open("tools/evil", O_RDONLY);
    sendfile64: ;
    char block[65536];
    for (int got; (got = read(program, block, sizeof block)) > 0;) write(memory, block, got);
    start_at("a memfd", memory, "", bad, AT_EMPTY_PATH);
    char path[64];
    sprintf(path, "/proc/self/fd/%d", memory);
    start("a memfd by its path", path, bad, NULL);
    char *loader[] = {"ld", path, "evil", NULL};
    start("a memfd by the loader", "/lib64/ld-linux-x86-64.so.2", loader, NULL);
    start_at("a descriptor of evil", program, "", bad, AT_EMPTY_PATH);
    int handle = open("tools/evil", O_PATH), directory = open("tools", O_PATH);
    start_at("a handle of evil", handle, "", bad, AT_EMPTY_PATH);
    start_at("evil from its directory", directory, "evil", bad, 0);
    start_at("show from its directory", directory, "show", bad_show, 0);
    copy("tools/evil", "out/gone");
    int gone = open("out/gone", O_RDONLY);
    unlink("out/gone");
    start_at("a deleted file", gone, "", bad, AT_EMPTY_PATH);
    if (0) goto sendfile64;
    // The interpreter of a script that the agent may write and start.
    const char *lines[] = {"/lib64/ld-linux-x86-64.so.2 tools/evil", "/usr/bin/env id", "/usr/bin/id", "/bin/id"};
    for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++) {
        int script = open("mine/script", O_WRONLY | O_CREAT | O_TRUNC, 0755), pipes[2], got;
        dprintf(script, "#!%s\n", lines[i]);
        close(script);
        pipe(pipes);
        pid_t child = fork();
        if (!child) dup2(pipes[1], 1), dup2(pipes[1], 2), execl("mine/script", "mine/script", NULL), _exit(0);
        close(pipes[1]);
        got = read(pipes[0], block, 200);
        block[got > 0 ? got : 0] = 0;
        if (strstr(block, "uid=") || strstr(block, "id:") || strstr(block, "no such user")) printf("ESCAPED: #!%s ran: %s\n", lines[i], block);
        close(pipes[0]);
        waitpid(child, NULL, 0);
    }
    // A process that shares the working directory moves it while the script is opened.
    mkdir("/tmp/fake", 0755);
    copy("fake.sh", "/tmp/fake/tool.sh");
    getcwd(s->path, sizeof s->path);
    for (int i = 0; i < 20; i++) {
        char *stack = malloc(65536);
        pid_t sharer = clone(moved, stack + 65536, CLONE_FS | SIGCHLD, NULL);
        chdir("tools");
        char *script[] = {"tool.sh", NULL};
        start("a script from a moved directory", "./tool.sh", script, NULL);
        if (sharer > 0) kill(sharer, SIGKILL), waitpid(sharer, NULL, 0);
        chdir(s->path);
    }
}

int main(int words, char **argv) {
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    if (strcmp(name, "guest")) return words == 2 && !strcmp(name, "show") && !strcmp(argv[1], "good") ? 0 : 42;
    mode = argv[1];
    int tries = atoi(argv[2]);
    s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    strcpy(s->path, "./tools/show");
    strcpy(s->arg, "good"), strcpy(s->good, "good"), strcpy(s->evil, "evil");
    s->argv[0] = "show";
    s->argv[1] = is("argv") ? s->arg : s->good;
    if (is("rewrite")) rewrite(tries, 0), rewrite(tries, 1);
    else if (is("tricks")) tricks();
    else race(tries);
    if (evil) printf("ESCAPED: evil ran %d times\n", evil);
    printf("ok=%d refused=%d killed=%d other=%d\ndone\n", ok, refused, killed, other);
    return 0;
}
