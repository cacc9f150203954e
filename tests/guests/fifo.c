// Opens FIFOs while other threads keep the supervisor busy with a denied file: a descriptor that is
// confused with another one gives its content away.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static volatile int stop, leaks;

static void *knock(void *unused) {
    (void)unused;
    while (!stop) {
        int file = open("denied.txt", O_RDONLY);
        if (file >= 0) leaks++, close(file);
    }
    return NULL;
}

static void *look(void *path) {
    while (!stop) {
        char text[64] = {0};
        int file = open(path, O_RDONLY);
        if (file < 0) continue;
        int got = pread(file, text, 60, 0);
        if (got > 0 && strstr(text, "DENIED")) leaks++;
        struct stat status;
        if (fstat(file, &status) || !S_ISFIFO(status.st_mode)) leaks++;
        close(file);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    mkfifo("out/pipe", 0600);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, knock, NULL);
    for (int i = 2; i < 4; i++) pthread_create(&threads[i], NULL, look, "out/pipe");
    time_t end = time(NULL) + 2;
    while (time(NULL) < end) {
        int file = open("out/pipe", O_WRONLY | O_NONBLOCK);
        if (file >= 0) close(file);
        usleep(200);
    }
    stop = 1;
    if (leaks) printf("ESCAPED: %d reads of another file\n", leaks);
    puts("done");
    fflush(stdout);
    _exit(0);
}
