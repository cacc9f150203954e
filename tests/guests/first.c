/*
 * Looks at itself before anything else has run: the registers and flags that it begins with, its descriptors, and
 * the page of its first instruction. Built without a C library.
 */
typedef unsigned long u64;

u64 registers[16];

__asm__(".globl _start\n"
	"_start:\n"
	"	mov %rax, registers(%rip)\n"
	"	mov %rbx, registers+8(%rip)\n"
	"	mov %rcx, registers+16(%rip)\n"
	"	mov %rdx, registers+24(%rip)\n"
	"	mov %rsi, registers+32(%rip)\n"
	"	mov %rdi, registers+40(%rip)\n"
	"	mov %rbp, registers+48(%rip)\n"
	"	mov %r8, registers+56(%rip)\n"
	"	mov %r9, registers+64(%rip)\n"
	"	mov %r10, registers+72(%rip)\n"
	"	mov %r11, registers+80(%rip)\n"
	"	mov %r12, registers+88(%rip)\n"
	"	mov %r13, registers+96(%rip)\n"
	"	mov %r14, registers+104(%rip)\n"
	"	mov %r15, registers+112(%rip)\n"
	"	pushfq\n"
	"	pop registers+120(%rip)\n"
	"	and $-16, %rsp\n"
	"	call look\n");

extern const unsigned char _start[];

static long call(long number, long a, long b, long c)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}

static void print(u64 number)
{
	char text[17];
	for (int at = 0; at < 16; at++)
		text[at] = "0123456789abcdef"[number >> (60 - 4 * at) & 15];
	text[16] = '\n';
	call(1, 1, (long)text, sizeof text);
}

void look(void)
{
	for (int at = 0; at < 16; at++)
		print(registers[at]);
	u64 open = 0;
	for (int descriptor = 0; descriptor < 64; descriptor++)
		open |= (u64)(call(72, descriptor, 1, 0) >= 0) << descriptor;
	print(open);
	/* The sum of the page (FNV-1a). */
	const unsigned char *page = (const unsigned char *)((u64)_start & -4096ul);
	u64 sum = 0xcbf29ce484222325ul;
	for (int at = (int)((u64)_start & 4095); at < 4096; at++)
		sum = (sum ^ page[at]) * 0x100000001b3ul;
	print(sum);
	call(231, 0, 0, 0);
}
