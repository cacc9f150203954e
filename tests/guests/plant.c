// Binds sockets by paths that mean one place to the guest and another to whoever binds in its stead.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(void) {
    int place = open("/tmp", O_RDONLY | O_DIRECTORY);
    const char *forms[] = {"//proc/self/fd/%d/planted", "/./proc/self/fd/%d/planted", "/proc/self/fd/%d/planted", "/dev/fd/%d/planted",
                           "//dev/fd/%d/planted", "//proc/1/fd/%d/planted", "/proc//self/fd/%d/planted", "//proc/thread-self/fd/%d/planted"};
    for (int number = 3; number < 64; number++) {
        for (unsigned i = 0; i < sizeof forms / sizeof *forms; i++) {
            struct sockaddr_un address = {.sun_family = AF_UNIX};
            int s = socket(AF_UNIX, SOCK_STREAM, 0);
            int moved = fcntl(s, F_DUPFD, 100);
            close(s);
            if (number != place) dup2(place, number);
            sprintf(address.sun_path, forms[i], number);
            bind(moved, (void *)&address, sizeof address);
            close(moved);
            if (number != place) close(number);
            unlink("/tmp/planted");
        }
    }
    puts("done");
    return 0;
}
