// Holds a handle of a denied file until the host has replaced it, and opens it by that.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    char path[64], text[8] = {0};
    struct stat status;
    int handle = open("denied.key", O_PATH);
    close(open("out/ready", O_WRONLY | O_CREAT, 0644));
    for (int i = 0; i < 9000 && stat("out/go", &status); i++) usleep(10000);
    const char *forms[] = {"/proc/self/fd/%d", "/dev/fd/%d", "/proc/thread-self/fd/%d"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, forms[i], handle);
        int file = open(path, O_RDONLY);
        if (file >= 0 && read(file, text, 6) == 6) printf("ESCAPED: read %s\n", text);
        if (open(path, O_RDWR) >= 0) puts("ESCAPED: opened for writing");
        if (chmod(path, 0777) == 0) puts("ESCAPED: changed its mode");
        if (linkat(AT_FDCWD, path, AT_FDCWD, "out/link", AT_SYMLINK_FOLLOW) == 0) puts("ESCAPED: linked");
    }
    fstat(handle, &status);
    printf("links=%lu\ndone\n", (unsigned long)status.st_nlink);
    return 0;
}
