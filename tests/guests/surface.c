// Every system call that leads past a sandbox: each must be refused.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

static void no(const char *what, long result) {
    if (result >= 0) printf("ESCAPED: %s gave %ld\n", what, result);
}

// In a process of its own: what it does may kill it or change it.
static void alone(const char *what, long (*act)(void)) {
    int status;
    pid_t child = fork();
    if (!child) _exit(act() >= 0 ? 1 : 0);
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status)) printf("ESCAPED: %s\n", what);
}

static long interrupt80(void) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
    return result > 0 ? 0 : -1;
}
static long interrupt80_open(void) {
    long result;
    char *low = mmap((void *)0x10000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    strcpy(low, "secret.txt");
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(5), "b"(low), "c"(0), "d"(0) : "memory");
    return result;
}
static long x32(void) { return syscall(0x40000000 | 39); }
static long x32_open(void) { return syscall(0x40000000 | 2, "secret.txt", 0); }
static long traceme(void) { return ptrace(PTRACE_TRACEME, 0, 0, 0); }
static long attach(void) { return ptrace(PTRACE_SEIZE, getppid(), 0, 0); }
static long clone3_user(void) {
    unsigned long arguments[11] = {0x10000000, 0, 0, 0, SIGCHLD};
    long result = syscall(SYS_clone3, arguments, 64);
    if (!result) _exit(0);
    return result;
}
#define NAMESPACE(name, flag) \
    static long clone_##name(void) { long r = syscall(SYS_clone, flag | SIGCHLD, 0, 0, 0, 0); if (!r) _exit(0); return r; } \
    static long unshare_##name(void) { return unshare(flag); } \
    static long unshare_high_##name(void) { return syscall(SYS_unshare, (unsigned long)flag | 1UL << 40); }
NAMESPACE(user, CLONE_NEWUSER) NAMESPACE(mount, CLONE_NEWNS) NAMESPACE(pid, CLONE_NEWPID) NAMESPACE(net, CLONE_NEWNET)
NAMESPACE(ipc, CLONE_NEWIPC) NAMESPACE(uts, CLONE_NEWUTS) NAMESPACE(cgroup, CLONE_NEWCGROUP)
static long unshare_time(void) { return unshare(0x80); }
static long clone_untraced(void) { long r = syscall(SYS_clone, 0x00800000 | SIGCHLD, 0, 0, 0, 0); if (!r) _exit(0); return r; }
static long personality_read_implies_exec(void) { return syscall(SYS_personality, 0x0400000); }
static long personality_linux32(void) { return syscall(SYS_personality, 8); }
static long inner_listener(void) {
    struct { unsigned short code; unsigned char jt, jf; unsigned k; } allow = {6, 0, 0, 0x7fff0000};
    struct { unsigned short length; void *filter; } program = {1, &allow};
    return syscall(SYS_seccomp, 1, 8, &program);
}
// A filter that sends everything to a listener that it does not have: calls fail, none passes.
static long notify_without_listener(void) {
    struct { unsigned short code; unsigned char jt, jf; unsigned k; } notify[] = {
        {0x20, 0, 0, 0}, {0x15, 0, 1, SYS_openat}, {6, 0, 0, 0x7fc00000}, {6, 0, 0, 0x7fff0000}};
    struct { unsigned short length; void *filter; } program = {4, notify};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, 1, 0, &program)) return -1;
    return syscall(SYS_openat, AT_FDCWD, "secret.txt", 0, 0);
}
static long terminal(unsigned long command) {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY), number = 0, unlock = 0;
    char path[32], byte = 'x';
    if (master < 0) return -1;
    ioctl(master, TIOCSPTLCK, &unlock), ioctl(master, TIOCGPTN, &number);
    sprintf(path, "/dev/pts/%d", number);
    setsid();
    int slave = open(path, O_RDWR);
    ioctl(slave, TIOCSCTTY, 0);
    return syscall(SYS_ioctl, slave, command, &byte);
}
static long sti(void) { return terminal(0x5412); }
static long sti_high(void) { return terminal(0x5412 | 1UL << 32); }
static long sti_higher(void) { return terminal(0x5412 | 0xdeadUL << 48); }
static long linux_paste(void) { return terminal(0x541c); }
static long lease(void) { return fcntl(open("out/mine", O_RDWR | O_CREAT, 0644), F_SETLEASE, F_WRLCK); }
static long delegate(void) { return fcntl(open("out", O_RDONLY), 1024 + 16, F_RDLCK); }
static long exchange_mm(void) { return prctl(PR_SET_MM, PR_SET_MM_ARG_START, 0x1000, 0, 0); }

static void calls(void) {
    char block[512] = {0};
    no("io_uring_setup", syscall(SYS_io_uring_setup, 4, block));
    no("io_uring_register", syscall(SYS_io_uring_register, -1, 0, 0, 0) == -1 && errno != ENOSYS ? 0 : -1);
    alone("int 0x80", interrupt80), alone("open by int 0x80", interrupt80_open);
    alone("x32", x32), alone("open by x32", x32_open);
    alone("ptrace TRACEME", traceme), alone("ptrace SEIZE", attach);
    alone("clone3 NEWUSER", clone3_user);
#define ALL(name) alone("clone " #name, clone_##name), alone("unshare " #name, unshare_##name), alone("unshare high " #name, unshare_high_##name)
    ALL(user), ALL(mount), ALL(pid), ALL(net), ALL(ipc), ALL(uts), ALL(cgroup);
    alone("unshare time", unshare_time), alone("clone UNTRACED", clone_untraced);
    alone("personality READ_IMPLIES_EXEC", personality_read_implies_exec), alone("personality LINUX32", personality_linux32);
    alone("seccomp listener", inner_listener), alone("notify without listener", notify_without_listener);
    alone("TIOCSTI", sti), alone("TIOCSTI high", sti_high), alone("TIOCSTI higher", sti_higher), alone("TIOCLINUX", linux_paste);
    alone("lease", lease), alone("delegation", delegate), alone("PR_SET_MM", exchange_mm);
    struct iovec local = {block, 8}, remote = {block + 64, 8};
    no("process_vm_readv", syscall(SYS_process_vm_readv, getpid(), &local, 1, &remote, 1, 0));
    no("process_vm_writev", syscall(SYS_process_vm_writev, getpid(), &local, 1, &remote, 1, 0));
    int self = syscall(SYS_pidfd_open, getpid(), 0), parent = syscall(SYS_pidfd_open, 1, 0);
    no("pidfd_getfd", syscall(SYS_pidfd_getfd, self, 1, 0)), no("pidfd_getfd of pid 1", syscall(SYS_pidfd_getfd, parent, 0, 0));
    no("kcmp", syscall(SYS_kcmp, getpid(), 1, 0, 0, 0)), no("process_madvise", syscall(SYS_process_madvise, self, &local, 1, 4, 0));
    no("bpf", syscall(SYS_bpf, 5, block, 64)), no("perf_event_open", syscall(SYS_perf_event_open, block, 0, -1, -1, 0));
    no("keyctl", syscall(SYS_keyctl, 0, -3, 0)), no("add_key", syscall(SYS_add_key, "user", "x", "y", 1, -3));
    no("request_key", syscall(SYS_request_key, "user", "x", 0, -3)), no("userfaultfd", syscall(SYS_userfaultfd, 1));
    no("memfd_secret", syscall(447, 0)), no("modify_ldt", syscall(SYS_modify_ldt, 0, block, 64));
    struct { unsigned bytes; int type; char data[128]; } handle = {128, 0, {0}};
    int mount_id;
    no("name_to_handle_at", syscall(SYS_name_to_handle_at, AT_FDCWD, ".", &handle, &mount_id, 0));
    no("open_by_handle_at", syscall(SYS_open_by_handle_at, open(".", O_RDONLY), &handle, 0));
    no("fanotify", syscall(SYS_fanotify_init, 0, 0)), no("mount", mount("t", "/tmp", "tmpfs", 0, 0)), no("umount", umount2("/tmp", 2));
    no("bind mount", mount("/", "/tmp", 0, MS_BIND, 0)), no("pivot_root", syscall(SYS_pivot_root, ".", ".")), no("chroot", chroot("/tmp"));
    no("fsopen", syscall(SYS_fsopen, "tmpfs", 0)), no("open_tree", syscall(SYS_open_tree, AT_FDCWD, ".", 0)), no("open_tree CLONE", syscall(SYS_open_tree, AT_FDCWD, "/", 1));
    no("move_mount", syscall(SYS_move_mount, AT_FDCWD, "/tmp", AT_FDCWD, "/run", 0)), no("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/", 0x8000, block, 32));
    no("setns", syscall(SYS_setns, self, CLONE_NEWNS)), no("setns by file", syscall(SYS_setns, open("/proc/1/ns/mnt", O_RDONLY), 0));
    no("sethostname", sethostname("x", 1)), no("swapon", syscall(SYS_swapon, "/x", 0)), no("init_module", syscall(SYS_init_module, block, 8, ""));
    no("kexec_load", syscall(SYS_kexec_load, 0, 0, 0, 0)), no("iopl", syscall(SYS_iopl, 3)), no("syslog", syscall(SYS_syslog, 3, block, 100));
    no("acct", syscall(SYS_acct, 0)), no("quotactl", syscall(SYS_quotactl, 0, 0, 0, 0)), no("settimeofday", syscall(SYS_settimeofday, block, 0));
    no("uselib", syscall(SYS_uselib, "secret.txt")), no("an unknown call", syscall(600)), no("lookup_dcookie", syscall(212, 0, block, 64));
}

static void sockets(void) {
    no("vsock", socket(40, SOCK_STREAM, 0)), no("AF_ALG", socket(38, SOCK_SEQPACKET, 0)), no("packet", socket(17, SOCK_RAW, 0));
    no("raw", socket(2, SOCK_RAW, 1)), no("raw6", socket(10, SOCK_RAW, 58)), no("SOCK_PACKET", socket(2, 10, 3)), no("MPTCP", socket(2, SOCK_STREAM, 262));
    no("SCTP", socket(2, SOCK_STREAM, 132)), no("netfilter", socket(16, SOCK_RAW, 12)), no("uevent", socket(16, SOCK_DGRAM, 15)), no("audit", socket(16, SOCK_RAW, 9));
    no("bluetooth", socket(31, SOCK_RAW, 1)), no("can", socket(29, SOCK_RAW, 1)), no("tipc", socket(30, SOCK_STREAM, 0)), no("xdp", socket(44, SOCK_RAW, 0));
    no("vsock high", syscall(SYS_socket, 40UL | 1UL << 32, 1UL, 0)), no("smc", socket(43, SOCK_STREAM, 0)), no("rds", socket(21, SOCK_SEQPACKET, 0));
    int tcp = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    no("TCP_FASTOPEN_CONNECT", setsockopt(tcp, 6, 30, &one, sizeof one)), no("TCP_FASTOPEN", setsockopt(tcp, 6, 23, &one, sizeof one));
    no("IP_TRANSPARENT", setsockopt(tcp, 0, 19, &one, sizeof one)), no("SO_MARK", setsockopt(tcp, SOL_SOCKET, 36, &one, sizeof one));
}

static void files(void) {
    int mine = open("out/mine", O_RDWR | O_CREAT, 0755), only = open("secret.txt", O_RDONLY);
    no("chmod 4755", chmod("out/mine", 04755)), no("fchmod 2755", fchmod(mine, 02755)), no("fchmodat 6755", fchmodat(AT_FDCWD, "out/mine", 06755, 0));
    no("fchmodat2 4755", syscall(452, AT_FDCWD, "out/mine", 04755, 0)), no("creat 4755", open("out/suid", O_WRONLY | O_CREAT, 04755));
    no("mknod 4755", mknod("out/suid2", S_IFREG | 04755, 0)), no("mkdir 2777", mkdir("out/sgid", 02777));
    unsigned long how[3] = {O_WRONLY | O_CREAT, 04755, 0};
    no("openat2 4755", syscall(SYS_openat2, AT_FDCWD, "out/suid3", how, 24)), no("O_TMPFILE 4755", open("out", O_TMPFILE | O_RDWR, 04755));
    how[0] = O_TMPFILE | O_RDWR;
    no("openat2 O_TMPFILE 4755", syscall(SYS_openat2, AT_FDCWD, "out", how, 24));
    no("mknod device", mknod("out/null", S_IFCHR | 0666, 0x103)), no("mknod disk", mknod("/tmp/disk", S_IFBLK | 0666, 0xfe00)), no("whiteout", mknod("out/wh", S_IFCHR, 0));
    char capability[20] = {0, 0, 0, 2, 0, 0x20};
    no("security.capability", setxattr("out/mine", "security.capability", capability, 20, 0)), no("fsetxattr", fsetxattr(mine, "security.capability", capability, 20, 0));
    no("security.selinux", setxattr("out/mine", "security.selinux", "x", 1, 0)), no("trusted", setxattr("out/mine", "trusted.overlay.opaque", "y", 1, 0));
    no("setxattrat", syscall(463, AT_FDCWD, "out/mine", 0, "user.x", capability, 16));
    no("fchmod through a descriptor for reading", fchmod(only, 0777)), no("fchown", fchown(only, getuid(), getgid())), no("fsetxattr user", fsetxattr(only, "user.x", "x", 1, 0));
    no("futimens", futimens(only, NULL)), no("ftruncate", ftruncate(only, 0)), no("fallocate", fallocate(only, 0, 0, 10)), no("write", write(only, "x", 1));
    no("copy_file_range", copy_file_range(mine, NULL, only, NULL, 1, 0) > 0 ? 0 : -1), no("mmap shared", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, only, 0) == MAP_FAILED ? -1 : 0);
    no("map executable", mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, mine, 0) == MAP_FAILED ? -1 : 0);
    char path[64];
    sprintf(path, "/proc/self/fd/%d", only);
    no("reopen for writing", open(path, O_RDWR)), no("truncate by descriptor", truncate(path, 0)), no("unlink", unlink("secret.txt"));
    no("link out", link("secret.txt", "out/link")), no("rename out", rename("secret.txt", "out/renamed")), no("inode flags", ioctl(only, 0x40086602, "\0\0\0\0\0\0\0\0"));
    no("inode attributes", ioctl(mine, 0x401c5820, capability)), no("file_setattr", syscall(469, AT_FDCWD, "out/mine", capability, 16, 0));
    const char *writes[] = {"/proc/self/mem", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/self/oom_score_adj", "/proc/self/uid_map",
                            "/proc/1/mem", "/proc/self/attr/current", "/etc/passwd", "/usr/bin/x", "/x", "/dev/x", "/dev/kmsg", "/dev/mem", "/proc/self/comm"};
    for (unsigned i = 0; i < sizeof writes / sizeof *writes; i++) no(writes[i], open(writes[i], O_WRONLY | O_CREAT, 0644));
    const char *reads[] = {"/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/1/auxv", "/proc/1/stack", "/proc/1/fd/0", "/proc/1/exe", "/proc/kcore",
                           "/proc/kmsg", "/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/fuse", "/dev/net/tun", "/dev/userfaultfd", "/etc/shadow", "/proc/1/task/1/environ", "/sys/kernel/debug", "/root/.bashrc"};
    for (unsigned i = 0; i < sizeof reads / sizeof *reads; i++) {
        int file = open(reads[i], O_RDONLY);
        if (file >= 0 && (read(file, path, 1) > 0 || errno == EISDIR)) printf("ESCAPED: read %s\n", reads[i]);
    }
    for (int number = 0; number < 64; number++) {
        sprintf(path, "/proc/1/fd/%d", number);
        no(path, open(path, O_RDONLY)), no(path, open(path, O_WRONLY)), no(path, open(path, O_RDONLY | O_DIRECTORY));
        strcat(path, "/.");
        no(path, open(path, O_RDONLY));
    }
    for (int number = 3; number < 1024; number++) {
        struct stat status;
        if (number > only + 60 && fstat(number, &status) == 0) printf("ESCAPED: inherited descriptor %d\n", number);
    }
}

int main(int count, char **words) {
    // Nothing but the three descriptors is inherited.
    for (int number = 3; number < 4096; number++) if (fcntl(number, F_GETFD) >= 0) printf("ESCAPED: inherited descriptor %d\n", number);
    if (!strcmp(words[1], "calls")) calls();
    if (!strcmp(words[1], "sockets")) sockets();
    if (!strcmp(words[1], "files")) files();
    puts("done");
    return count != 2;
}
