/* A timer whose descriptor a child holds too: the parent hears of it and of the child in turns. */

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	int timer = timerfd_create(CLOCK_MONOTONIC, 0), event = eventfd(0, 0);
	struct itimerspec time = {{0, 400000000}, {0, 400000000}};
	uint64_t count = 5;
	timerfd_settime(timer, 0, &time, 0);
	if (fork() == 0) {
		dup(timer);
		usleep(600000);
		write(event, &count, sizeof count);
		usleep(800000);
		write(event, &count, sizeof count);
		pause();
	}
	for (int ticks = 0; ticks < 5;) {
		struct pollfd ready[2] = {{timer, POLLIN, 0}, {event, POLLIN, 0}};
		poll(ready, 2, 9000);
		if (ready[0].revents) {
			ticks++;
			read(timer, &count, sizeof count);
			printf("timer %d\n", (int)count);
		}
		if (ready[1].revents) {
			read(event, &count, sizeof count);
			printf("event %d\n", (int)count);
		}
	}
	return 0;
}
