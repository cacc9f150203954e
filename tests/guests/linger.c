// linger MODE: leaves processes behind. Each of them writes to out/alive for as long as it lives.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void live(void) {
    for (int number = 1; number < 65; number++) signal(number, SIG_IGN);
    int file = open("out/alive", O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (;;) {
        write(file, "x", 1);
        usleep(10000);
    }
}

int main(int count, char **words) {
    prctl(PR_SET_PDEATHSIG, 0), prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!fork()) setsid(), fork() ? _exit(0) : live();
    if (!vfork()) _exit(0);
    if (!syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0)) setsid(), live();
    if (!syscall(SYS_clone, 0, 0, 0, 0, 0)) live();
    if (!fork()) kill(getpid(), SIGSTOP), live();
    puts("done");
    fflush(stdout);
    usleep(100000);
    if (!strcmp(words[1], "stay")) live();
    return count != 2;
}
