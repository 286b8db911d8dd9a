/*
 * THREADS threads that wait in system calls of every kind between calls of work(): none may be interrupted. Prints "ready", then
 * for each line "CALLS INTERRUPTED".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define THREADS 64

static atomic_long calls, interrupted;
/* Of each wait: longer on a slow machine, which would do nothing but enter system calls otherwise. */
static long wait_us = 2000;

__attribute__((noinline)) int work(int n)
{
	__asm__ volatile("");
	return n + 1;
}

static int wait_somehow(int how, int epoll, sem_t *semaphore)
{
	struct timespec short_time = { 0, wait_us * 1000 }, until;
	struct timeval time = { 0, wait_us };
	struct epoll_event event;

	switch (how % 6) {
	case 0:
		return nanosleep(&short_time, NULL);
	case 1:
		return epoll_wait(epoll, &event, 1, wait_us / 1000);
	case 2:
		return poll(NULL, 0, wait_us / 1000);
	case 3:
		return select(0, NULL, NULL, NULL, &time);
	case 4:
		return usleep(wait_us);
	default:
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += wait_us * 1000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		return sem_timedwait(semaphore, &until) < 0 && errno == EINTR ? -1 : 0;
	}
}

static void *thread(void *argument)
{
	int how = (int)(long)argument, epoll = epoll_create1(0);
	sem_t semaphore;

	sem_init(&semaphore, 0, 0);
	for (;;) {
		work(how);
		atomic_fetch_add(&calls, 1);
		errno = 0;
		if (wait_somehow(how++, epoll, &semaphore) < 0)
			atomic_fetch_add(&interrupted, 1);
	}
	return NULL;
}

int main(void)
{
	const char *slowness = getenv("SPEED_BUMP_SLOWNESS");

	if (slowness && atoi(slowness) > 0 && atoi(slowness) < 100)
		wait_us *= atoi(slowness);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (long i = 0; i < THREADS; i++) {
		pthread_t one;

		if (pthread_create(&one, NULL, thread, (void *)i) != 0)
			return 1;
	}
	puts("ready");
	for (int c; (c = getchar()) != EOF;) {
		if (c == '\n')
			printf("%ld %ld\n", atomic_load(&calls), atomic_load(&interrupted));
	}
	return 0;
}
