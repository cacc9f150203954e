// Attacks the launcher's own files below the work directory, by every name and every call: the policy,
// the names of traces, the links and directories that lead to them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

static void check(const char *what, const char *path, long result) {
    if (result >= 0) printf("ESCAPED: %s %s\n", what, path);
}

static void attack(const char *path) {
    char other[4096], text[16] = {0};
    struct stat status;
    int exists = lstat(path, &status) == 0;
    int file = open(path, O_RDONLY);
    if (file >= 0 && read(file, text, 1) == 1) printf("ESCAPED: read %s\n", path);
    close(file);
    check("write", path, open(path, O_WRONLY));
    check("create", path, open(path, O_WRONLY | O_CREAT, 0644));
    check("replace", path, open(path, O_WRONLY | O_CREAT | O_TRUNC | O_EXCL, 0644));
    check("truncate", path, truncate(path, 0));
    // The mode of a directory that holds such a file is the agent's.
    struct stat target;
    if (stat(path, &target) || !S_ISDIR(target.st_mode)) {
        check("chmod", path, chmod(path, 0777));
        check("utimes", path, utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW));
        check("setxattr", path, lsetxattr(path, "user.x", "x", 1, 0));
    }
    check("unlink", path, unlink(path));
    check("rmdir", path, rmdir(path));
    check("rename away", path, rename(path, "free/away"));
    check("rename over", path, rename("free/file", path));
    check("exchange", path, syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, "free/file", 2));
    check("exchange back", path, syscall(SYS_renameat2, AT_FDCWD, "free/file", AT_FDCWD, path, 2));
    check("link from", path, link(path, "free/second"));
    check("link to", path, link("free/file", path));
    check("symlink", path, symlink("free/file", path));
    check("mkdir", path, mkdir(path, 0755));
    check("mknod", path, mknod(path, S_IFREG | 0644, 0));
    check("mkfifo", path, mkfifo(path, 0644));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) < sizeof address.sun_path) {
        strcpy(address.sun_path, path);
        check("bind", path, bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&address, sizeof address));
    }
    int handle = open(path, O_PATH | O_NOFOLLOW);
    snprintf(other, sizeof other, "/proc/self/fd/%d", handle);
    if (handle >= 0 && S_ISREG(status.st_mode)) {
        check("reopen for writing", path, open(other, O_RDWR));
        file = open(other, O_RDONLY);
        if (file >= 0 && read(file, text, 1) == 1) printf("ESCAPED: reopened %s\n", path);
        check("link of handle", path, linkat(AT_FDCWD, other, AT_FDCWD, "free/third", AT_SYMLINK_FOLLOW));
        check("fchmodat2 of handle", path, syscall(452, handle, "", 0777, AT_EMPTY_PATH));
    }
    struct stat after;
    if (exists != (lstat(path, &after) == 0)) printf("ESCAPED: %s came or went\n", path);
}

int main(int count, char **words) {
    char path[4096], here[2048];
    getcwd(here, sizeof here);
    mkdir("free", 0755);
    for (int i = 1; i < count; i++) {
        close(open("free/file", O_WRONLY | O_CREAT, 0644));
        attack(words[i]);
        snprintf(path, sizeof path, "/proc/self/root%s/%s", here, words[i]);
        attack(path);
        snprintf(path, sizeof path, "/proc/self/cwd/free/../%s", words[i]);
        attack(path);
        symlink("..", "free/up");
        snprintf(path, sizeof path, "free/up/%s", words[i]);
        attack(path);
    }
    puts("done");
    return 0;
}
