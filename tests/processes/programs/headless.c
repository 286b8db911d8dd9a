// Ends its main thread and leaves another running.
#include <pthread.h>
#include <unistd.h>

static void *stay(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, 0, stay, 0);
	pthread_exit(0);
}
