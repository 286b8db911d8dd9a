/*
 * Gives up a signal's handler and puts it back, all the time, while other threads call work().
 *
 *   resets SIGNAL         prints "ready"; then for each line "N" does it N times and prints "N done"
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) int work(int n)
{
	__asm__ volatile("");
	return n + 1;
}

static void *thread(void *argument)
{
	for (int i = 0;; i++)
		work(i);
	return argument;
}

int main(int argc, char **argv)
{
	int number = argc > 1 ? atoi(argv[1]) : SIGURG;
	struct sigaction none, before;
	pthread_t threads[3];
	char line[32];

	memset(&none, 0, sizeof(none));
	none.sa_handler = SIG_DFL;
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, thread, NULL);
	while (fgets(line, sizeof(line), stdin)) {
		int wanted = atoi(line);

		for (int i = 0; i < wanted; i++) {
			sigaction(number, &none, &before);
			work(i);
			sigaction(number, &before, NULL);
			work(i);
		}
		printf("%d done\n", wanted);
	}
	return 0;
}
