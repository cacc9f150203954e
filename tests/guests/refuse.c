// A host that refuses: answers the named system calls with an errno, then executes a program.
//
//   refuse CALL=ERRNO ... -- PROGRAM [WORD ...]
//
// CALL is a number; CALL:AT:VALUE refuses it where argument AT (0-5) is VALUE (low 32 bits), and
// CALL:AT&MASK where argument AT has one of the bits MASK (both halves are looked at). CALL:AT:VALUE,OTHER
// wants of argument OTHER that it is not 0, as well.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST 64

static struct sock_filter code[8 * MOST + 8];
static unsigned short length;

static void add(unsigned short what, unsigned char yes, unsigned char no, unsigned int k) {
    code[length++] = (struct sock_filter){what, yes, no, k};
}

static void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, 0, 0, (unsigned int)offset); }

static void refuse(unsigned int error) { add(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error); }

static void rule(const char *word) {
    char *rest;
    unsigned int call = (unsigned int)strtoul(word, &rest, 0);
    unsigned int at = 0;
    unsigned long value = 0;
    char kind = *rest;
    if (kind == ':') {
        at = (unsigned int)strtoul(rest + 1, &rest, 0);
        kind = *rest;
        value = strtoul(rest + 1, &rest, 0);
    }
    unsigned int other = 0;
    if (*rest == ',') {
        other = (unsigned int)strtoul(rest + 1, &rest, 0);
    }
    if (*rest != '=') {
        fprintf(stderr, "refuse: what is %s?\n", word);
        exit(2);
    }
    unsigned int error = (unsigned int)strtoul(rest + 1, NULL, 0);
    size_t low = offsetof(struct seccomp_data, args) + 8 * at;
    load(offsetof(struct seccomp_data, nr));
    if (kind == '=') {
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call);
    } else if (kind == ':' && other) {
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 5, call);
        load(low);
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, (unsigned int)value);
        load(offsetof(struct seccomp_data, args) + 8 * other);
        add(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0);
    } else if (kind == ':') {
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, call);
        load(low);
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (unsigned int)value);
    } else {
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 5, call);
        load(low);
        add(BPF_JMP | BPF_JSET | BPF_K, 2, 0, (unsigned int)value);
        load(low + 4);
        add(BPF_JMP | BPF_JSET | BPF_K, 0, 1, (unsigned int)(value >> 32));
    }
    refuse(error);
}

int main(int count, char **words) {
    int at = 1;
    for (; at < count && strcmp(words[at], "--") != 0 && at <= MOST; at++) {
        rule(words[at]);
    }
    if (at + 1 >= count || strcmp(words[at], "--") != 0) {
        fprintf(stderr, "refuse: no program\n");
        return 2;
    }
    add(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {length, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("refuse: seccomp");
        return 2;
    }
    execv(words[at + 1], words + at + 1);
    perror(words[at + 1]);
    return 2;
}
