/* Writes and opens while signals come all the time, whose handler does not ask for calls to begin anew. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

static void handle(int number) { (void)number; }

int main(void)
{
    struct sigaction action = { .sa_handler = handle };
    struct itimerval often = { { 0, 100 }, { 0, 100 } };
    long interrupted = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 3000; i++) {
        int file = open("data", O_RDONLY);
        if (file < 0)
            interrupted += errno == EINTR;
        else
            close(file);
        if (write(1, ".\n", 2) < 0)
            interrupted += errno == EINTR;
    }
    fprintf(stderr, "%ld interrupted\n", interrupted);
    return interrupted != 0;
}
