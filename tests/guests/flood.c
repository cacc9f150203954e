// flood MODE: uses up what the supervisor has: time, memory, descriptors, threads.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *mode;
static int is(const char *name) { return strcmp(mode, name) == 0; }

// A file of a tebibyte without a byte in it; one that grows while it is read.
static void sparse(void) {
    int file = open("out/huge", O_RDWR | O_CREAT, 0644);
    ftruncate(file, 1L << 40);
    close(file);
    for (int i = 0; i < 5; i++) close(open("out/huge", O_RDONLY));
    for (int i = 0; i < 2; i++) {
        char path[32];
        sprintf(path, "out/large%d", i);
        file = open(path, O_RDWR | O_CREAT, 0644);
        ftruncate(file, (1L << 30) - i);
        close(file);
    }
    pid_t writer = fork();
    if (!writer) {
        file = open("out/growing", O_WRONLY | O_CREAT | O_APPEND, 0644);
        char block[65536] = {1};
        for (int i = 0; i < 4000; i++) write(file, block, sizeof block);
        _exit(0);
    }
    for (int i = 0; i < 2; i++) usleep(10000), close(open("out/growing", O_RDONLY));
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    for (int i = 0; i < 2; i++) {
        char path[32];
        sprintf(path, "out/large%d", i);
        unlink(path);
    }
}

// Each process has one child, which is seen while its parent lives: the longest possible lineage.
static void chain(int length) {
    int end[2];
    pipe(end);
    if (fork()) {
        char byte;
        close(end[1]);
        while (read(end[0], &byte, 1) > 0) {}
        return;
    }
    for (int i = 0; i < length; i++) {
        int gate[2];
        pipe(gate);
        if (fork()) {
            char byte;
            close(gate[1]);
            read(gate[0], &byte, 1);
            _exit(0);
        }
        close(gate[0]);
        close(open("/tmp/nothing", O_RDONLY));
        write(gate[1], "x", 1);
        close(gate[1]);
    }
    _exit(0);
}

static void files(void) {
    struct rlimit limit = {8192, 8192};
    setrlimit(RLIMIT_NOFILE, &limit);
    int open_at_once = 0;
    for (int i = 0; i < 3000; i++) {
        char path[32];
        sprintf(path, "out/f%d", i);
        if (open(path, O_WRONLY | O_CREAT, 0644) >= 0) open_at_once++;
    }
    if (open_at_once < 1000) printf("only %d files\n", open_at_once);
}

static void *wait_for_writer(void *path) { close(open(path, O_RDONLY)); return NULL; }

static void threads(void) {
    mkfifo("out/fifo", 0600), mkfifo("/tmp/fifo", 0600);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 32768);
    pthread_t thread;
    for (int i = 0; i < 1000; i++) pthread_create(&thread, &small, wait_for_writer, i & 1 ? "out/fifo" : "/tmp/fifo");
    sleep(1);
    for (int i = 0; i < 20; i++) close(open("out/f", O_WRONLY | O_CREAT, 0644));
}

static void words(void) {
    static char word[100001];
    char *argv[22] = {0};
    memset(word, '\'', 100000);
    for (int i = 0; i < 20; i++) argv[i] = word;
    for (int i = 0; i < 10; i++) sprintf(word, "%d", i), word[strlen(word)] = 'x', execv("/usr/bin/id", argv);
    // More pointers than an argument list may have.
    char **many = malloc(8 * 200001);
    for (int i = 0; i < 200000; i++) many[i] = "";
    many[200000] = NULL;
    execv("/usr/bin/id", many);
}

static void names(void) {
    char path[5000] = "/tmp/";
    memset(path + 5, 'a', 4990);
    open(path, O_RDONLY), open(path, O_RDWR | O_CREAT, 0600), unlink(path), rename(path, path), execl(path, path, NULL);
    strcpy(path, "/tmp");
    for (int i = 0; i < 900; i++) strcat(path, "/d"), mkdir(path, 0755);
    open(path, O_RDONLY | O_DIRECTORY);
    symlink("loop", "/tmp/loop"), open("/tmp/loop", O_RDONLY), open("/tmp/loop", O_WRONLY | O_CREAT, 0600);
    for (int i = 0; i < 3000; i++) {
        char from[32], to[32];
        sprintf(from, "out/l%d", i), sprintf(to, "l%d", i - 1);
        symlink(to, from);
    }
    for (int i = 0; i < 100; i++) open("out/l2999", O_RDONLY), open("out/l2999", O_WRONLY | O_CREAT, 0600);
    for (unsigned long at = 0; at < 4096; at += 64) open((char *)at, O_RDONLY), execve((char *)at, (char **)at, (char **)at);
    char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(edge + 4096, 4096);
    memset(edge, 'e', 4096);
    open(edge, O_RDONLY), open(edge + 4095, O_RDONLY), execv(edge, (char **)(edge + 4088));
}

static void everybody(void) {
    for (int i = 0; i < 20; i++) if (!fork()) { for (;;) close(open("out/x", O_WRONLY | O_CREAT, 0600)); }
    usleep(200000);
    kill(-1, SIGSTOP), kill(-1, SIGCONT), usleep(100000);
    signal(SIGTERM, SIG_IGN);
    for (int number = 1; number < 65; number++) kill(1, number), kill(-1, number == SIGTERM ? 0 : number == SIGKILL ? SIGKILL : 0);
    while (waitpid(-1, NULL, 0) > 0) {}
}

// Opens that wait for a writer for ever, by processes that are killed meanwhile.
static void abandoned(void) {
    mkfifo("out/fifo", 0600);
    for (int i = 0; i < 60; i++) {
        pid_t children[50];
        for (int k = 0; k < 50; k++) if (!(children[k] = fork())) close(open("out/fifo", O_RDONLY)), _exit(0);
        usleep(20000);
        for (int k = 0; k < 50; k++) kill(children[k], SIGKILL), waitpid(children[k], NULL, 0);
    }
    close(open("out/f", O_WRONLY | O_CREAT, 0644));
}

int main(int count, char **arguments) {
    mode = arguments[1];
    if (is("sparse")) sparse();
    if (is("chain")) chain(4000);
    if (is("files")) files();
    if (is("threads")) threads();
    if (is("abandoned")) abandoned();
    if (is("words")) words();
    if (is("names")) names();
    if (is("everybody")) everybody();
    if (is("watches")) for (int i = 0; i < 2000; i++) inotify_init();
    puts("done");
    fflush(stdout);
    _exit(count != 2);
}
