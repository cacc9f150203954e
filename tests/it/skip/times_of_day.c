/* Waits for a time of day: one that is woken, one that a signal ends, and two that last. */

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t nothing;
static int ready;
static struct timespec begun;

static struct timespec in(int seconds)
{
	struct timespec time;
	clock_gettime(CLOCK_REALTIME, &time);
	time.tv_sec += seconds;
	return time;
}

static void tell(const char *what, int result)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	double since = (double)(now.tv_sec - begun.tv_sec) + (double)(now.tv_nsec - begun.tv_nsec) / 1e9;
	printf("%s %d %.2f\n", what, result, since);
	fflush(stdout);
}

static void on_signal(int signal)
{
	(void)signal;
	if (write(1, "sign al\n", 8) != 8)
		_exit(1);
}

static void *other(void *main_thread)
{
	sleep(2);
	pthread_mutex_lock(&mutex);
	ready = 1;
	pthread_cond_signal(&condition);
	pthread_mutex_unlock(&mutex);
	sleep(1);
	pthread_kill(*(pthread_t *)main_thread, SIGUSR1);
	return 0;
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	sigaction(SIGUSR1, &action, 0);
	sem_init(&nothing, 0, 0);
	clock_gettime(CLOCK_MONOTONIC, &begun);
	pthread_t thread, self = pthread_self();
	pthread_create(&thread, 0, other, &self);

	struct timespec until = in(60);
	int result = 0;
	pthread_mutex_lock(&mutex);
	while (!ready && !result)
		result = pthread_cond_timedwait(&condition, &mutex, &until);
	tell("woken", result);

	until = in(60);
	tell("interrupted", sem_timedwait(&nothing, &until));
	pthread_join(thread, 0);
	until = in(2);
	tell("over", sem_timedwait(&nothing, &until));

	until = in(3);
	do
		result = pthread_cond_timedwait(&condition, &mutex, &until);
	while (!result);
	tell("alone", result);
	return 0;
}
