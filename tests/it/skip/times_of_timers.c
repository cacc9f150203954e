/* Timers that wait until a time of day. */

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static struct timespec begun;

static struct timespec in(clockid_t clock, int seconds)
{
	struct timespec time;
	clock_gettime(clock, &time);
	time.tv_sec += seconds;
	return time;
}

static void tell(const char *what, long result)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	double since = (double)(now.tv_sec - begun.tv_sec) + (double)(now.tv_nsec - begun.tv_nsec) / 1e9;
	printf("%s %ld %.2f\n", what, result, since);
	fflush(stdout);
}

static void on_signal(int signal)
{
	(void)signal;
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGUSR1, &action, 0);
	clock_gettime(CLOCK_MONOTONIC, &begun);

	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	timer_t timer;
	timer_create(CLOCK_REALTIME, &event, &timer);
	struct itimerspec time = {{0, 500000000}, in(CLOCK_REALTIME, 2)};
	timer_settime(timer, TIMER_ABSTIME, &time, 0);
	pause();
	tell("timer", 0);
	pause();
	tell("again", 0);
	timer_delete(timer);

	int file = timerfd_create(CLOCK_REALTIME, 0);
	time = (struct itimerspec){{0, 0}, in(CLOCK_REALTIME, 2)};
	timerfd_settime(file, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &time, 0);
	uint64_t count = 0;
	ssize_t length = read(file, &count, sizeof count);
	tell("timerfd", length == sizeof count ? (long)count : -1);
	/* Over already; and none. */
	time = (struct itimerspec){{0, 0}, in(CLOCK_REALTIME, -5)};
	timerfd_settime(file, TFD_TIMER_ABSTIME, &time, 0);
	length = read(file, &count, sizeof count);
	tell("over", length == sizeof count ? (long)count : -1);
	time = (struct itimerspec){{0, 0}, {0, 0}};
	timerfd_settime(file, TFD_TIMER_ABSTIME, &time, &time);
	timerfd_gettime(file, &time);
	tell("none", time.it_value.tv_sec + time.it_value.tv_nsec);
	return 0;
}
