/* An event loop: how often its runtime reads the clocks is a matter of chance. */

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static unsigned chance(unsigned most)
{
	return (unsigned)(__builtin_ia32_rdtsc() >> 3) % most;
}

/* What the runtime reads for itself. */
__attribute__((noinline)) static void runtime(void)
{
	struct timespec time;
	for (unsigned left = chance(200); left; left--)
		clock_gettime(left % 2 ? CLOCK_MONOTONIC_COARSE : CLOCK_MONOTONIC, &time);
	for (unsigned left = chance(4); left; left--)
		clock_gettime(CLOCK_REALTIME, &time);
}

/* What the program asks for. */
__attribute__((noinline)) static void tell(void)
{
	struct timespec time;
	clock_gettime(CLOCK_REALTIME, &time);
	printf("%ld.%09ld\n", time.tv_sec, time.tv_nsec);
	fflush(stdout);
}

static void look(void)
{
	int file = open("file", O_RDONLY);
	if (file >= 0)
		close(file);
}

int main(void)
{
	for (int turn = 0; turn < 60; turn++) {
		runtime();
		look();
		tell();
		usleep(2000);
	}
}
