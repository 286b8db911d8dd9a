// Ends its main thread and leaves two others running. The first of them ends when there is something to read.
#include <pthread.h>
#include <unistd.h>

static void *stay(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void *stay_for_a_byte(void *unused)
{
	char byte;
	if (read(0, &byte, 1) != 1)
		stay(unused);
	return unused;
}

int main(void)
{
	pthread_t first, second;
	pthread_create(&first, 0, stay_for_a_byte, 0);
	pthread_create(&second, 0, stay, 0);
	pthread_exit(0);
}
