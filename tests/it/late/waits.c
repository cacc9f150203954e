// One thread counts how often it waits until a time for another's answer in vain; then it waits for a timer.
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came;
static int is_late;

static void *ask(void *port) {
    static const char said[] = "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    char answer[200] = {0};
    size_t length = 0;
    if (connect(client, (struct sockaddr *)&to, sizeof to) || write(client, said, sizeof said - 1) < 0) exit(1);
    while (length < 4 || memcmp(answer + length - 4, "late", 4)) {
        ssize_t count = read(client, answer + length, sizeof answer - length);
        if (count <= 0) exit(2);
        length += count;
    }
    pthread_mutex_lock(&lock);
    is_late = 1;
    pthread_cond_signal(&came);
    pthread_mutex_unlock(&lock);
    return NULL;
}

// Whether a timer has ended before its time, and how often at its end.
static void tell_timer(void) {
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec until = {0};
    clock_gettime(CLOCK_MONOTONIC, &until.it_value);
    until.it_value.tv_sec += 1;
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &until, 0);
    struct pollfd early = {timer, POLLIN, 0};
    int is_early = poll(&early, 1, 0);
    uint64_t ends = 0;
    if (read(timer, &ends, sizeof ends) != sizeof ends) exit(4);
    printf("timer %d %lu\n", is_early, (unsigned long)ends);
}

int main(int count, char **words) {
    pthread_condattr_t monotonic;
    pthread_t thread;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&came, &monotonic);
    if (!access("slow", F_OK)) sleep(2);
    if (count < 2 || pthread_create(&thread, NULL, ask, words[1])) return 3;
    pthread_mutex_lock(&lock);
    for (int waits = 0;; waits++) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += 1;
        until.tv_nsec += 400000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        for (int ended = 0; !is_late && !ended;) ended = pthread_cond_timedwait(&came, &lock, &until);
        if (is_late) {
            printf("%d late\n", waits);
            tell_timer();
            return 0;
        }
    }
}
