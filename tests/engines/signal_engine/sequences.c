/*
 * Does at random what could make a signal deadly: fork, exec, sigaction, sigprocmask, threads that come and go.
 *
 *   sequences SEED        prints "ready"; then for each line "N" runs N sequences and prints "N done"
 *   sequences again SEED  the end of a sequence, after an exec
 *
 * Each sequence is a child of its own, which calls work() between its steps. Whoever dies of a signal is told of.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *self;
static volatile int handled;

__attribute__((noinline)) int work(int n)
{
	__asm__ volatile("");
	return n + 1;
}

static void own_handler(int signal)
{
	(void)signal;
	handled++;
	work(handled);
}

static unsigned next(unsigned *seed)
{
	*seed = *seed * 1103515245u + 12345u;
	return *seed >> 16;
}

static int a_signal(unsigned *seed)
{
	return SIGRTMIN + (int)(next(seed) % (unsigned)(SIGRTMAX - SIGRTMIN + 1));
}

/* Mostly the one that the session has. */
static int the_signal(unsigned *seed)
{
	return next(seed) % 2 ? SIGURG : a_signal(seed);
}

static void handle(unsigned *seed)
{
	void (*const what[])(int) = { SIG_DFL, SIG_IGN, own_handler };
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = what[next(seed) % 3];
	action.sa_flags = next(seed) % 2 ? SA_RESTART : 0;
	sigaction(the_signal(seed), &action, NULL);
}

static void mask(unsigned *seed)
{
	const int how[] = { SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK };
	sigset_t set;

	if (next(seed) % 4 == 0)
		sigfillset(&set);
	else
		sigemptyset(&set);
	sigaddset(&set, the_signal(seed));
	pthread_sigmask(how[next(seed) % 3], &set, NULL);
}

static void *thread(void *argument)
{
	unsigned seed = (unsigned)(unsigned long)argument;

	for (int i = 0; i < 4; i++) {
		work(i);
		if (next(&seed) % 3 == 0)
			mask(&seed);
	}
	return NULL;
}

static int wait_for(pid_t child)
{
	int status = 0;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void steps(unsigned seed, int depth)
{
	pthread_t threads[32];
	int count = 0;
	int left = 4 + (int)(next(&seed) % 12);

	for (int i = 0; i < left; i++) {
		char text[16];
		pid_t child;

		work(i);
		switch (next(&seed) % 8) {
		case 0:
		case 1:
			handle(&seed);
			break;
		case 2:
		case 3:
			mask(&seed);
			break;
		case 4:
			if (depth > 2)
				break;
			child = fork();
			if (child == 0) {
				steps(seed + 1, depth + 1);
				_exit(0);
			}
			if (child > 0 && wait_for(child) != 0)
				_exit(1);
			break;
		case 5:
			snprintf(text, sizeof(text), "%u", seed);
			if (depth == 0 && next(&seed) % 4 == 0)
				execl(self, self, "again", text, NULL);
			break;
		default:
			if (count < 32 && pthread_create(&threads[count], NULL, thread, (void *)(unsigned long)seed) == 0)
				count++;
			next(&seed);
		}
	}
	while (count > 0)
		pthread_join(threads[--count], NULL);
}

int main(int argc, char **argv)
{
	unsigned seed = 1;
	int wanted, deaths = 0;
	char line[32];

	self = argv[0];
	if (argc > 2 && strcmp(argv[1], "again") == 0) {
		steps((unsigned)atoi(argv[2]), 3);
		return 0;
	}
	if (argc > 1)
		seed = (unsigned)atoi(argv[1]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		wanted = atoi(line);
		for (int i = 0; i < wanted; i++) {
			pid_t child = fork();
			int how;

			if (child == 0) {
				steps(seed, 0);
				_exit(0);
			}
			how = child < 0 ? 0 : wait_for(child);
			if (how != 0) {
				deaths++;
				printf("death of %d in sequence %u\n", how, seed);
			}
			seed++;
			work(i);
		}
		printf("%d done, %d deaths\n", wanted, deaths);
	}
	return 0;
}
