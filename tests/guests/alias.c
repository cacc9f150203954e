// Reads and writes one file under every name that /proc, links and descriptors give it, and says how
// often it got anything.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int reads;

static void try(const char *path) {
    char text[16] = {0};
    int file = open(path, O_RDONLY);
    if (file < 0) return;
    if (read(file, text, 6) == 6 && !strncmp(text, "OPENED", 6)) reads++;
    close(file);
}

int main(int count, char **words) {
    char path[4096], here[2048];
    const char *name = words[1];
    getcwd(here, sizeof here);
    const char *roots[] = {"/proc/self/root", "/proc/thread-self/root", "/proc//self/root", "/proc/./self/./root", "/proc/2/root",
                           "/proc/self/task/2/root", "//proc/self/root//", "/usr/../proc/self/root", "/proc/self/../self/root"};
    for (unsigned i = 0; i < sizeof roots / sizeof *roots; i++) {
        snprintf(path, sizeof path, "%s%s/%s", roots[i], here, name);
        try(path);
    }
    const char *places[] = {"/proc/self/cwd", "/proc/thread-self/cwd", "/proc/2/cwd", "/proc/self/task/2/cwd", ".", "./."};
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/%s", places[i], name);
        try(path);
    }
    int handle = open(name, O_PATH), directory = open(".", O_PATH | O_DIRECTORY);
    const char *numbers[] = {"/proc/self/fd/%d", "/dev/fd/%d", "/proc/2/fd/%d", "/proc/self/task/2/fd/%d", "/proc//self/fd/%d"};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(path, sizeof path, numbers[i], handle);
        try(path);
        int length = snprintf(path, sizeof path, numbers[i], directory);
        snprintf(path + length, sizeof path - length, "/%s", name);
        try(path);
    }
    symlink(here, "/tmp/link");
    snprintf(path, sizeof path, "/tmp/link/%s", name);
    try(path);
    dup2(handle, 0);
    try("/dev/stdin");
    chdir("/proc/self/cwd");
    try(name);
    printf("reads=%d\ndone\n", reads);
    return count == 0;
}
