/* Kernel timers of every kind, and what they tell of themselves. */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static volatile int ticks, codes;

static void on_signal(int signal, siginfo_t *information, void *unused)
{
	(void)signal, (void)unused;
	ticks++;
	codes += information->si_code == SI_TIMER;
}

static struct timespec now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time;
}

static double since(struct timespec begun)
{
	struct timespec time = now();
	return (double)(time.tv_sec - begun.tv_sec) + (double)(time.tv_nsec - begun.tv_nsec) / 1e9;
}

int main(void)
{
	struct timespec begun = now();
	setvbuf(stdout, 0, _IOLBF, 0);
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
	sigaction(SIGUSR1, &action, 0);

	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	struct itimerspec time = {{0, 300000000}, {1, 0}};
	timer_settime(timer, 0, &time, 0);
	while (ticks < 3)
		pause();
	timer_gettime(timer, &time);
	printf("posix %d %d %.2f %ld\n", ticks, codes, since(begun), time.it_interval.tv_nsec);
	timer_delete(timer);

	struct timespec until = now();
	until.tv_sec += 1;
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	time = (struct itimerspec){{0, 0}, until};
	timer_settime(timer, TIMER_ABSTIME, &time, 0);
	pause();
	printf("absolute %d %.2f\n", ticks, since(begun));

	alarm(100);
	sleep(1);
	printf("alarm %u %.2f\n", alarm(0), since(begun));

	int file = timerfd_create(CLOCK_MONOTONIC, 0);
	time = (struct itimerspec){{0, 200000000}, {0, 600000000}};
	timerfd_settime(file, 0, &time, 0);
	uint64_t count, sum = 0;
	while (sum < 3 && read(file, &count, sizeof count) == sizeof count)
		sum += count;
	printf("timerfd %d %.2f\n", (int)sum, since(begun));

	until = now();
	until.tv_sec += 1;
	time = (struct itimerspec){{0, 0}, until};
	timerfd_settime(file, TFD_TIMER_ABSTIME, &time, 0);
	int set = epoll_create1(0);
	struct epoll_event ready = {.events = EPOLLIN};
	epoll_ctl(set, EPOLL_CTL_ADD, file, &ready);
	printf("epoll %d %.2f\n", epoll_wait(set, &ready, 1, 9000), since(begun));

	int pair[2];
	char byte;
	struct timeval limit = {1, 0};
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	ssize_t result = read(pair[0], &byte, 1);
	printf("socket %zd %s %.2f\n", result, strerror(errno), since(begun));

	fd_set reads;
	FD_ZERO(&reads);
	FD_SET(pair[0], &reads);
	limit = (struct timeval){0, 500000};
	int selected = select(pair[0] + 1, &reads, 0, 0, &limit);
	printf("select %d %d %ld\n", selected, FD_ISSET(pair[0], &reads), (long)limit.tv_usec);
	return 0;
}
