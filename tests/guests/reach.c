// reach PORT ALLOWED TARGETS...: sends "EVIL" to every address at which the host might listen on PORT,
// while ALLOWED is a port of the host that a rule names.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void send_all(int family, int kind, const void *address, socklen_t length) {
    int s = socket(family, kind | SOCK_NONBLOCK, 0);
    if (s < 0) return;
    if (connect(s, address, length) == 0 || errno == EINPROGRESS) {
        struct pollfd ready = {s, POLLOUT, 0};
        poll(&ready, 1, 200);
        send(s, "EVIL", 4, MSG_NOSIGNAL);
    }
    close(s);
    s = socket(family, kind | SOCK_NONBLOCK, 0);
    sendto(s, "EVIL", 4, MSG_NOSIGNAL, address, length);
    sendto(s, "EVIL", 4, MSG_NOSIGNAL | 0x20000000, address, length);
    struct iovec part = {"EVIL", 4};
    struct msghdr message = {(void *)address, length, &part, 1, 0, 0, 0};
    struct mmsghdr many = {message, 0};
    sendmsg(s, &message, MSG_NOSIGNAL), sendmmsg(s, &many, 1, MSG_NOSIGNAL);
    close(s);
}

static void inet(const char *text, int port) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    for (int kind = SOCK_STREAM; kind <= SOCK_DGRAM; kind++) {
        if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) send_all(AF_INET, kind, &v4, sizeof v4);
        if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1) send_all(AF_INET6, kind, &v6, sizeof v6);
    }
}

static void local(const char *name, int abstract) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(name) + 1 >= sizeof address.sun_path) return;
    strcpy(address.sun_path + abstract, name);
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name);
    int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 3; i++) send_all(AF_UNIX, kinds[i], &address, length), send_all(AF_UNIX, kinds[i], &address, sizeof address);
}

static volatile struct sockaddr_in flipped;
static volatile int stop, number = 200, spare_tcp, spare_unix;
static int port, allowed;

static void *flip(void *mode) {
    for (int side = 0; !stop; side ^= 1) {
        if (!strcmp(mode, "port")) flipped.sin_port = htons(side ? port : allowed);
        else dup2(side ? spare_tcp : spare_unix, number);
        for (volatile int k = 0; k < rand() % 2000; k++);
    }
    return NULL;
}

static void race(const char *mode) {
    pthread_t thread;
    stop = 0;
    flipped.sin_family = AF_INET, flipped.sin_addr.s_addr = htonl(INADDR_LOOPBACK), flipped.sin_port = htons(allowed);
    spare_tcp = socket(AF_INET, SOCK_STREAM, 0), spare_unix = socket(AF_UNIX, SOCK_STREAM, 0);
    pthread_create(&thread, NULL, flip, (void *)mode);
    time_t end = time(NULL) + 3;
    for (int i = 0; i < 400 && time(NULL) < end; i++) {
        int s = !strcmp(mode, "port") ? socket(AF_INET, SOCK_STREAM, 0) : number;
        if (connect(s, (void *)&flipped, sizeof flipped) == 0) send(s, "RACE", 4, MSG_NOSIGNAL);
        if (s != number) close(s); else close(spare_tcp), spare_tcp = socket(AF_INET, SOCK_STREAM, 0);
    }
    stop = 1;
    pthread_join(thread, NULL);
}

int main(int count, char **words) {
    port = atoi(words[1]), allowed = atoi(words[2]);
    const char *addresses[] = {"127.0.0.1", "127.1.2.3", "0.0.0.0", "255.255.255.255", "169.254.169.254", "10.0.0.1", "192.168.0.1", "224.0.0.1",
                               "::1", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1", "ff02::1", "fd00::1"};
    for (unsigned i = 0; i < sizeof addresses / sizeof *addresses; i++) inet(addresses[i], port);
    for (int i = 3; i < count; i++) {
        if (words[i][0] == '@') local(words[i] + 1, 1);
        else if (words[i][0] == '/' || words[i][0] == '.') {
            local(words[i], 0);
            char other[200];
            snprintf(other, sizeof other, "/proc/self/cwd/%s", words[i]), local(other, 0);
            unlink("/tmp/s"), symlink(words[i], "/tmp/s"), local("/tmp/s", 0);
            int handle = open(words[i], O_PATH);
            snprintf(other, sizeof other, "/proc/self/fd/%d", handle), local(other, 0);
            snprintf(other, sizeof other, "/dev/fd/%d", handle), local(other, 0);
        } else inet(words[i], port);
    }
    race("port"), race("descriptor");
    puts("done");
    return 0;
}
