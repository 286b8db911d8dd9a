/* A server for `cargo xtask bench truth`: a thread for each connection, a byte in, a byte out.
 *
 *     server SOCKET WORDS
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "slow.h"

/* The function that really gets slower. */
__attribute__((noipa)) uint64_t real(uint64_t number)
{
	return take_turns(words->turns) + number;
}

/* The same, which the tool slows. */
__attribute__((noipa)) uint64_t probed(uint64_t number)
{
	return take_turns(number & 1) + number;
}

static void *serve(void *argument)
{
	int connection = (int)(intptr_t)argument;
	char byte;
	while (read(connection, &byte, 1) == 1) {
		take_turns(words->own_turns);
		byte ^= (char)(words->is_real ? real(2) : probed(2));
		if (write(connection, &byte, 1) != 1)
			break;
	}
	close(connection);
	return NULL;
}

static void *accept_all(void *argument)
{
	int listener = (int)(intptr_t)argument;
	for (;;) {
		int connection = accept(listener, NULL, NULL);
		pthread_t thread;
		if (connection < 0 || pthread_create(&thread, NULL, serve, (void *)(intptr_t)connection))
			exit(1);
		pthread_detach(thread);
	}
}

int main(int count, char **arguments)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	signal(SIGPIPE, SIG_IGN);
	if (count != 3 || !words_open(arguments[2]))
		return 2;
	strncpy(address.sun_path, arguments[1], sizeof address.sun_path - 1);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64))
		return 1;
	pthread_t thread;
	if (pthread_create(&thread, NULL, accept_all, (void *)(intptr_t)listener))
		return 1;
	printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	/* Ends with its parent. */
	while (getchar() != EOF)
		;
	return 0;
}
