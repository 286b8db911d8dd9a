/* Stands in for the helper: what it exports, and nothing of what it does. It writes into the block that it was
 * called, and by a thread of its own that it started one; it leaves when the block says so. */
#define _GNU_SOURCE
#include <pthread.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MARK_CALLED 64
#define MARK_THREAD 65
#define MARK_LEAVE 66

/* Kills the process whose thread traces this one: the loader, at the very moment that it has this thread at work. */
static void kill_tracer(void)
{
	char status[4096];
	int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
	ssize_t length = read(fd, status, sizeof status - 1);
	close(fd);
	status[length < 0 ? 0 : length] = 0;
	char *line = strstr(status, "TracerPid:");
	int tracer = line ? atoi(line + 10) : 0;
	if (tracer > 0)
		kill(tracer, SIGKILL);
	for (int i = 0; i < 20; i++) /* be at work when it is gone */
		usleep(1000);
}

#ifdef VARIANT_KILLER
__attribute__((constructor)) static void loaded(void)
{
	kill_tracer();
}
#endif

static void *run(void *block)
{
	volatile uint8_t *bytes = block;
	bytes[MARK_THREAD] = 1;
	while (!bytes[MARK_LEAVE] && bytes[0] != 'Q' && bytes[0] != 'K') /* those quit by themselves */
		usleep(1000);
	munmap(block, 4096);
	return 0;
}

__attribute__((visibility("default"))) int speed_bump_attach(int fd)
{
	uint8_t *bytes = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd); /* the helper's in any case */
	if (bytes == MAP_FAILED)
		return 1;
	if (bytes[0] == 'L') { /* a helper that waits for a lock that nobody gives back */
		pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
		pthread_mutex_lock(&lock);
		pthread_mutex_lock(&lock);
	}
	if (bytes[0] == 'C') /* one that crashes */
		*(volatile int *)8 = 1;
	if (bytes[0] == 'K')
		kill_tracer();
	if (bytes[0] == 'W') { /* one that is slow */
		for (int i = 0; i < 100; i++)
			usleep(1000);
	}
	bytes[MARK_CALLED]++;
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_t thread;
	int failed = pthread_create(&thread, 0, run, bytes);
	pthread_sigmask(SIG_SETMASK, &before, 0);
	if (failed)
		return 8;
	pthread_detach(thread);
	return 0;
}
