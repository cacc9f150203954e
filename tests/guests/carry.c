// carry NAMES...: moves what is denied, and the directories above it, to names that nothing denies, and
// reads there.
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int leaks;

static int look(const char *path, const struct stat *status, int kind, struct FTW *walk) {
    char text[8] = {0};
    (void)status, (void)walk;
    if (kind != FTW_F) return 0;
    int file = open(path, O_RDONLY);
    if (file >= 0 && read(file, text, 6) == 6 && !memcmp(text, "DENIED", 6)) printf("ESCAPED: read %s\n", path), leaks++;
    close(file);
    file = open(path, O_RDWR);
    if (file >= 0 && pread(file, text, 6, 0) == 6 && !memcmp(text, "DENIED", 6)) printf("ESCAPED: read %s by writing\n", path), leaks++;
    close(file);
    return 0;
}

static void search(void) { nftw(".", look, 32, FTW_PHYS | FTW_MOUNT); }

int main(int count, char **words) {
    char path[4096], above[4096];
    mkdir("free", 0755), mkdir("free/inner", 0755), mkdir("caf\xef\xbf\xbd", 0755);
    close(open("free/file", O_WRONLY | O_CREAT, 0644));
    for (int i = 1; i < count; i++) {
        const char *name = words[i];
        const char *flags[] = {"free/plain", "free/inner/x.txt"};
        for (int k = 0; k < 2; k++) {
            rename(name, flags[k]), search();
            link(name, flags[k]), search();
            symlink(name, flags[k]), search();
            unlink(flags[k]);
            close(open(flags[k], O_WRONLY | O_CREAT, 0644));
            for (int how = 0; how < 4; how++) syscall(SYS_renameat2, AT_FDCWD, name, AT_FDCWD, flags[k], how), search();
            for (int how = 0; how < 4; how++) syscall(SYS_renameat2, AT_FDCWD, flags[k], AT_FDCWD, name, how), search();
        }
        int handle = open(name, O_PATH), other = open("free/inner", O_PATH | O_DIRECTORY);
        sprintf(path, "/proc/self/fd/%d", handle);
        linkat(AT_FDCWD, path, other, "linked", AT_SYMLINK_FOLLOW), linkat(handle, "", other, "linked", AT_EMPTY_PATH), search();
        // Every directory above it, to another name, into another directory, and exchanged.
        strcpy(above, name);
        for (char *slash; (slash = strrchr(above, '/'));) {
            *slash = 0;
            if (!*above || !strcmp(above, ".")) break;
            const char *targets[] = {"moved", "free/moved", "free/inner/moved", "caf"};
            for (int k = 0; k < 4; k++) {
                if (rename(above, targets[k]) == 0) search(), rename(targets[k], above);
                mkdir(targets[k], 0755);
                if (syscall(SYS_renameat2, AT_FDCWD, above, AT_FDCWD, targets[k], 2) == 0) search(), syscall(SYS_renameat2, AT_FDCWD, above, AT_FDCWD, targets[k], 2);
                rmdir(targets[k]);
                symlink(above, targets[k]);
                snprintf(path, sizeof path, "%s/%s", targets[k], name + strlen(above) + 1);
                struct stat status;
                look(path, &status, FTW_F, NULL);
                unlink(targets[k]);
            }
        }
        if (truncate(name, 0) == 0) printf("ESCAPED: truncated %s\n", name);
        if (chmod(name, 0777) == 0) printf("ESCAPED: changed the mode of %s\n", name);
        int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (file >= 0) printf("ESCAPED: opened %s for writing\n", name);
        if (unlink(name) == 0) printf("ESCAPED: removed %s\n", name);
    }
    // The name that this one has when it is put into words.
    if (rename("caf\xe9", "moved") == 0) search(), rename("moved", "caf\xe9");
    search();
    puts("done");
    return leaks != 0;
}
