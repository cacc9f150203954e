// race MODE TRIES: opens what a sibling exchanges under the supervisor's eyes.
//   path     the bytes of the path change          link    a symbolic link is exchanged
//   dir      directories are exchanged             how     the flags of openat2 change
//   files    a descriptor number is reused          cwd     the working directory changes
//   system   the path changes between a file of the system and a granted one
// Prints how often the granted file was read and how often the denied one was refused.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile char path[32] __attribute__((aligned(32)));
static volatile struct { unsigned long flags, mode, resolve; } how;
static volatile int stop;
static int granted, denied;
static const char *mode;

static void set(const char *text) {
    char padded[32] = {0};
    strcpy(padded, text);
    for (int i = 3; i >= 0; i--) ((volatile unsigned long *)path)[i] = ((unsigned long *)padded)[i];
}

static int is(const char *name) { return strcmp(mode, name) == 0; }

static void *flip(void *unused) {
    (void)unused;
    unsigned random = 7;
    for (int side = 0; !stop; side ^= 1) {
        if (is("path")) set(side ? "./open/file.txt" : "./shut/file.txt");
        if (is("system")) set(side ? "/usr/lib/os-release" : "./open/file.txt");
        if (is("link")) {
            symlink(side ? "../open/file.txt" : "../shut/file.txt", "out/new");
            rename("out/new", "out/link");
        }
        if (is("dir")) syscall(SYS_renameat2, AT_FDCWD, "out/a", AT_FDCWD, "out/b", 2);
        if (is("how")) how.flags = side ? O_PATH : O_RDONLY;
        if (is("files")) dup2(side ? granted : denied, 100);
        if (is("cwd")) fchdir(side ? granted : denied);
        random = random * 1103515245 + 12345;
        for (volatile unsigned k = 0; k < (random >> 16) % 2000; k++);
    }
    return NULL;
}

static int attempt(void) {
    if (is("path") || is("system")) return open((char *)path, O_RDONLY);
    if (is("link")) return open("out/link", O_RDONLY);
    if (is("dir")) return open("out/a/file.txt", O_RDONLY);
    if (is("how")) return syscall(SYS_openat2, AT_FDCWD, "shut/file.txt", &how, 24);
    if (is("files")) return openat(100, "file.txt", O_RDONLY);
    return open("file.txt", O_RDONLY);
}

int main(int count, char **words) {
    mode = words[1];
    int tries = atoi(words[2]), reads = 0, refused = 0, leaks = 0, other = 0;
    granted = open("open", O_RDONLY | O_DIRECTORY);
    denied = open("shut", O_PATH | O_DIRECTORY);
    set("./open/file.txt");
    dup2(granted, 100);
    if (is("link")) symlink("../open/file.txt", "out/link");
    pthread_t thread;
    pthread_create(&thread, NULL, flip, NULL);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < tries; i++) {
        char text[8] = {0};
        int file = attempt();
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > 20) break;
        if (file < 0) {
            if (errno == EACCES) refused++; else other++;
            continue;
        }
        int got = read(file, text, 6);
        if (got == 6 && (!memcmp(text, "DENIED", 6) || !memcmp(text, "# DENI", 6))) leaks++;
        else if (got == 6 && !memcmp(text, "OPENED", 6)) reads++;
        else other++;
        if (is("how") && got < 0) {
            char again[32];
            sprintf(again, "/proc/self/fd/%d", file);
            int second = open(again, O_RDONLY);
            if (second >= 0) leaks++, close(second); else refused++, other--;
        }
        close(file);
    }
    stop = 1;
    pthread_join(thread, NULL);
    if (leaks) printf("ESCAPED: read the denied file %d times\n", leaks);
    printf("reads=%d refused=%d other=%d\ndone\n", reads, refused, other);
    return count == 0;
}
