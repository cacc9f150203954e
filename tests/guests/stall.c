// Connects sockets to a full queue while another thread changes whether that waits: `stall timeout|blocking`.
// Says whether another process's calls were held up meanwhile.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int changed = -1;
static int is_timeout;

static void *change(void *unused) {
    const struct timeval for_ever = {0, 0};
    (void)unused;
    for (;;) {
        int one = changed;
        if (one < 0) continue;
        if (is_timeout) {
            setsockopt(one, SOL_SOCKET, SO_SNDTIMEO, &for_ever, sizeof for_ever);
        } else {
            fcntl(one, F_SETFL, O_NONBLOCK);
            fcntl(one, F_SETFL, 0);
        }
    }
    return NULL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void connect_all(const struct sockaddr_in *to) {
    pthread_t thread;
    pthread_create(&thread, NULL, change, NULL);
    for (int i = 0; i < 30; i++) {
        changed = socket(AF_INET, SOCK_STREAM, 0);
        // This one's socket too: the memory is another, the socket the same.
        pid_t child = fork();
        if (child == 0) {
            connect(changed, (const struct sockaddr *)to, sizeof *to);
            _exit(0);
        }
        usleep(20000);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    _exit(0);
}

int main(int count, char **words) {
    is_timeout = count > 1 && strcmp(words[1], "timeout") == 0;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int server = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server, (struct sockaddr *)&at, length) || listen(server, 0)) return 1;
    getsockname(server, (struct sockaddr *)&at, &length);
    for (int i = 0; i < 4; i++) {
        connect(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), (struct sockaddr *)&at, length);
    }
    pid_t child = fork();
    if (child == 0) connect_all(&at);
    double longest = 0;
    while (waitpid(child, NULL, WNOHANG) == 0) {
        double begun = now();
        close(open(".", O_RDONLY));
        if (now() - begun > longest) longest = now() - begun;
        usleep(1000);
    }
    fprintf(stderr, "longest: %f s\n", longest);
    puts(longest > 5 ? "held up" : "went on");
    return 0;
}
