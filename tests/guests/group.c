// Signals and renices its own process group, of which the launcher and its shell are members too.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    int signals[] = {SIGUSR2, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++) {
        signal(signals[i], SIG_IGN);
        kill(0, signals[i]);
        killpg(0, signals[i]);
        int self = syscall(SYS_pidfd_open, getpid(), 0);
        syscall(SYS_pidfd_send_signal, self, signals[i], NULL, 4);
    }
    if (setpriority(PRIO_PGRP, 0, 19) == 0) puts("ESCAPED: reniced the process group");
    if (syscall(SYS_ioprio_set, 2, 0, 3 << 13) == 0) puts("ESCAPED: changed the group's I/O priority");
    for (int pid = -1; pid > -400000; pid -= 1 + (-pid) / 64) kill(pid == -1 ? -getppid() - 1 : pid, 0);
    for (int i = 0; i < 65; i++) kill(1, i);
    puts("done");
    return 0;
}
