// Runs a command and prints how many milliseconds it took: timed in here, the start of the launcher is not counted.
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

int main(int count, char **arguments) {
    posix_spawn_file_actions_t actions;
    struct timespec started, ended;
    pid_t child;
    int status, error;

    if (count < 2) {
        fputs("usage: timed COMMAND [ARGUMENT...]\n", stderr);
        return 2;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    clock_gettime(CLOCK_MONOTONIC, &started);
    error = posix_spawnp(&child, arguments[1], &actions, NULL, arguments + 1, environ);
    if (error) {
        fprintf(stderr, "timed: %s: %s\n", arguments[1], strerror(error));
        return 127;
    }
    if (waitpid(child, &status, 0) < 0) return 125;
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.3f\n", (ended.tv_sec - started.tv_sec) * 1e3 + (ended.tv_nsec - started.tv_nsec) / 1e6);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
