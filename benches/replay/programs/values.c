#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    struct timespec now, precise;
    struct timeval day;
    unsigned char bytes[16], more[8];
    char name[] = "out/XXXXXX";
    int file = open("/dev/urandom", O_RDONLY);
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_MONOTONIC, &precise);
    gettimeofday(&day, NULL);
    getrandom(bytes, sizeof bytes, 0);
    if (read(file, more, sizeof more) != sizeof more || mkstemp(name) < 0) return 1;
    srand(time(NULL) ^ getpid());
    printf("%ld.%09ld %ld.%09ld %ld.%06ld %d %s\n", (long)now.tv_sec, now.tv_nsec, (long)precise.tv_sec, precise.tv_nsec,
           (long)day.tv_sec, (long)day.tv_usec, rand(), name);
    for (unsigned i = 0; i < sizeof bytes; i++) printf("%02x", bytes[i]);
    printf(" %p %p %02x %d\n", (void *)main, malloc(100), more[0], getpid());
    fflush(stdout);
    if (fork() == 0) {
        usleep(200000);
        printf("child %d %ld\n", getpid(), (long)time(NULL));
        return 0;
    }
    wait(NULL);
    return 7;
}
