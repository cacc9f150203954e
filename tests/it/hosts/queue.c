/* A message queue that waits until a time of day: to be read from, not at all, and to be written to. */

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct timespec begun;

static struct timespec in(int seconds)
{
	struct timespec time;
	clock_gettime(CLOCK_REALTIME, &time);
	time.tv_sec += seconds;
	return time;
}

static void tell(long result)
{
	int error = errno;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	double since = (double)(now.tv_sec - begun.tv_sec) + (double)(now.tv_nsec - begun.tv_nsec) / 1e9;
	printf("%s %ld %.2f\n", result < 0 ? strerror(error) : "done", result, since);
	fflush(stdout);
}

int main(void)
{
	clock_gettime(CLOCK_MONOTONIC, &begun);
	struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
	char message[8];
	mqd_t queue = mq_open("/queue", O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
	struct timespec until = in(2);
	tell(mq_timedreceive(queue, message, sizeof message, 0, &until));
	mq_send(queue, "x", 1, 0);
	tell(mq_timedsend(queue, "y", 1, 0, &until));
	until = in(2);
	tell(mq_timedsend(queue, "y", 1, 0, &until));
	tell(mq_timedreceive(queue, message, sizeof message, 0, &until));
	return 0;
}
