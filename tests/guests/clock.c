/* Reads clocks in every way that there is, and writes over the memory in which its reads are kept. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(clockid_t id)
{
	struct timespec time;
	clock_gettime(id, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static uint64_t now_raw(clockid_t id)
{
	struct timespec time;
	syscall(SYS_clock_gettime, id, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static int read_clocks(int count)
{
	uint64_t sum = 0;
	for (int i = 0; i < count; i++)
		sum += now(i % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME);
	for (int i = 0; i < 50; i++)
		sum += now_raw(CLOCK_BOOTTIME) + now(CLOCK_MONOTONIC_RAW);
	struct timeval both[2];
	gettimeofday(&both[0], NULL);
	syscall(SYS_gettimeofday, &both[1], NULL);
	time_t seconds[2] = { time(NULL), syscall(SYS_time, NULL) };
	printf("sum=%llu micros=%ld raw_micros=%ld\n", (unsigned long long)sum, (long)both[0].tv_usec,
	       (long)both[1].tv_usec);
	printf("real=%llu seconds=%ld raw_seconds=%ld coarse=%llu tai=%llu\n", (unsigned long long)now(CLOCK_REALTIME),
	       seconds[0], seconds[1], (unsigned long long)now(CLOCK_REALTIME_COARSE),
	       (unsigned long long)now(CLOCK_TAI));
	/* Those of CPU time are the kernel's. */
	return now(CLOCK_PROCESS_CPUTIME_ID) == 0 || now(CLOCK_THREAD_CPUTIME_ID) == 0;
}

static void *thread(void *place)
{
	uint64_t *sum = place;
	for (int i = 0; i < 100; i++)
		*sum += now(CLOCK_MONOTONIC);
	*sum += now_raw(CLOCK_MONOTONIC);
	return NULL;
}

/* Stacks, and with them the bases of FS, are used again. */
static int threads(void)
{
	for (int round = 0; round < 5; round++) {
		pthread_t id[8];
		uint64_t sum[8] = { 0 };
		for (int i = 0; i < 8; i++)
			pthread_create(&id[i], NULL, thread, &sum[i]);
		for (int i = 0; i < 8; i++) {
			pthread_join(id[i], NULL);
			printf("%llu ", (unsigned long long)sum[i]);
		}
		printf("%llu\n", (unsigned long long)now(CLOCK_REALTIME));
	}
	return 0;
}

static int forks(void)
{
	for (int i = 0; i < 5; i++) {
		now(CLOCK_MONOTONIC);
		fflush(stdout);
		if (!fork()) {
			uint64_t sum = 0;
			for (int j = 0; j < 10 + i; j++)
				sum += now(CLOCK_REALTIME);
			printf("child %d %llu\n", i, (unsigned long long)sum);
			exit(i % 2 ? threads() : 0);
		}
		wait(NULL);
		if (!vfork()) {
			now(CLOCK_REALTIME);
			_exit(0);
		}
		wait(NULL);
	}
	printf("parent %llu\n", (unsigned long long)now(CLOCK_REALTIME));
	return 0;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int ready;

static void *wake(void *unused)
{
	(void)unused;
	usleep(30000);
	pthread_mutex_lock(&mutex);
	ready = 1;
	pthread_cond_signal(&condition);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static struct timespec in(clockid_t id, long milliseconds)
{
	uint64_t then = now(id) + milliseconds * 1000000;
	return (struct timespec){ then / 1000000000, then % 1000000000 };
}

/* Until a time, by both clocks: once it comes, once something else does. */
static int waits(void)
{
	for (int i = 0; i < 2; i++) {
		clockid_t id = i ? CLOCK_MONOTONIC : CLOCK_REALTIME;
		uint64_t start = now(CLOCK_MONOTONIC);
		struct timespec until = in(id, 40);
		int slept = clock_nanosleep(id, TIMER_ABSTIME, &until, NULL);
		printf("slept %d %d ", slept, now(CLOCK_MONOTONIC) - start >= 40000000);
		sem_t semaphore;
		sem_init(&semaphore, 0, 0);
		until = in(id, 40);
		printf("waited %d ", sem_clockwait(&semaphore, id, &until));
		pthread_t thread;
		ready = 0;
		pthread_create(&thread, NULL, wake, NULL);
		pthread_mutex_lock(&mutex);
		until = in(id, 20000);
		int came = 0;
		while (!ready && !came)
			came = pthread_cond_clockwait(&condition, &mutex, id, &until);
		pthread_mutex_unlock(&mutex);
		pthread_join(thread, NULL);
		printf("came %d\n", came);
	}
	return 0;
}

#define CONTROL ((volatile uint64_t *)0x70002000)
#define LANES ((volatile uint64_t *)0x70004000)
#define LANE_WORDS 2048

static volatile int stop;

static void *scribble(void *unused)
{
	(void)unused;
	uint64_t random = 88172645463325252ull;
	while (!stop) {
		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		volatile uint64_t *lane = LANES + random % 4 * LANE_WORDS;
		lane[random >> 8 & 7] = random % 3 ? random : ~0ull;
		lane[8 + random % (LANE_WORDS - 8)] = random;
	}
	return NULL;
}

/* Everything at once, in threads and children. */
static int hostile(void)
{
	pthread_t id[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&id[i], NULL, scribble, NULL);
	uint64_t sum = 0;
	for (int i = 0; i < 3000; i++) {
		sum += now(i % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME);
		if (i % 10 == 0)
			sum += now_raw(CLOCK_MONOTONIC);
	}
	for (int i = 0; i < 8; i++) {
		if (!fork()) {
			for (int j = 0; j < 100; j++)
				sum += now(CLOCK_REALTIME) + now_raw(CLOCK_REALTIME);
			_exit(0);
		}
		wait(NULL);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(id[i], NULL);
	for (int mode = 0; mode < 9; mode++) {
		if (!fork()) {
			signal(SIGSEGV, SIG_DFL);
			switch (mode) {
			case 0: memset((void *)CONTROL, 0xff, 24); break;
			case 1: memset((void *)CONTROL, 0xff, 0x2000); break;
			case 2: memset((void *)CONTROL, 0, 0x2000); break;
			case 3: memset((void *)LANES, 0xff, 1024ul * LANE_WORDS * 8); break;
			case 4: munmap((void *)LANES, 1024ul * LANE_WORDS * 8); break;
			case 5: munmap((void *)CONTROL, 0x2000); break;
			case 6: mprotect((void *)0x70000000, 0x2000, PROT_READ | PROT_WRITE | PROT_EXEC);
				memset((void *)0x70000000, 0xcc, 0x2000); break;
			case 7: mremap((void *)LANES, 0x4000, 0x8000000, MREMAP_MAYMOVE); break;
			case 8: remap_file_pages((void *)LANES, 0x4000, 0, 0, 0);
				memset((void *)LANES, 0xcc, 0x4000); break;
			}
			for (int i = 0; i < 5000; i++)
				sum += now_raw(CLOCK_MONOTONIC);
			for (int i = 0; i < 5000; i++)
				sum += now(CLOCK_MONOTONIC);
			_exit(0);
		}
		wait(NULL);
	}
	printf("done %d\n", sum == 0);
	return 0;
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";
	if (!strcmp(what, "read"))
		return read_clocks(atoi(words[2]));
	if (!strcmp(what, "threads"))
		return threads();
	if (!strcmp(what, "forks"))
		return forks();
	if (!strcmp(what, "waits"))
		return waits();
	if (!strcmp(what, "hostile"))
		return hostile();
	if (!strcmp(what, "spin"))
		for (;;)
			now(CLOCK_MONOTONIC);
	return 2;
}
