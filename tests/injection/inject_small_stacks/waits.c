/* Thirty threads with stacks of 32 KiB, and one with more: the main thread, which reads its input.
 *
 * The thirty wait without a limit for events that never come. They count how often the wait was broken off.
 * The number is printed when the input ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#define THREADS 30

static atomic_int waiting, broken_off;

static void *wait_for_ever(void *unused)
{
	(void)unused;
	int events = epoll_create1(0);
	struct epoll_event event;
	waiting++;
	for (;;)
		if (epoll_wait(events, &event, 1, -1) < 0 && errno == EINTR)
			broken_off++;
	return 0;
}

int main(void)
{
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 32 << 10);
	for (int i = 0; i < THREADS; i++) {
		pthread_t thread;
		if (pthread_create(&thread, &small, wait_for_ever, 0))
			return 1;
	}
	while (waiting < THREADS)
		usleep(1000);
	usleep(50000); /* from the count to the wait */
	puts("ready");
	fflush(stdout);
	char byte;
	while (read(0, &byte, 1) > 0)
		;
	printf("%d\n", broken_off);
	return 0;
}
