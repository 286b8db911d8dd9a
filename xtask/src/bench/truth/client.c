/* The load of `cargo xtask bench truth`: threads that each ask, wait for the answer, and ask again.
 *
 *     client SOCKET THREADS
 *
 * SOCKET may be empty with no threads. The commands, one a line on standard input; each is answered with an object and
 * a closing `{"event":"done"}`:
 *
 *     slice MS     what was answered in so many milliseconds: how many, and the median and 99th percentile of their time
 *     turns NS     how many turns of work take so long
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "slow.h"

#define MOST (1 << 18)

/* A client's answered requests of the slice. */
struct client {
	pthread_mutex_t lock;
	int connection;
	uint64_t from, until;
	uint32_t count, times[MOST];
};

static struct client *clients;
static int threads;

static void *ask(void *argument)
{
	struct client *client = argument;
	char byte = 0;
	for (;;) {
		uint64_t began = now_ns();
		if (write(client->connection, &byte, 1) != 1 || read(client->connection, &byte, 1) != 1)
			exit(1);
		uint64_t ended = now_ns();
		pthread_mutex_lock(&client->lock);
		if (began >= client->from && ended < client->until && client->count < MOST)
			client->times[client->count++] = (uint32_t)(ended - began);
		pthread_mutex_unlock(&client->lock);
	}
}

static int by_length(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	return (a > b) - (a < b);
}

static void slice(uint64_t milliseconds)
{
	uint64_t from = now_ns(), until = from + milliseconds * 1000000;
	for (int number = 0; number < threads; number++) {
		pthread_mutex_lock(&clients[number].lock);
		clients[number].from = from;
		clients[number].until = until;
		clients[number].count = 0;
		pthread_mutex_unlock(&clients[number].lock);
	}
	while (now_ns() < until)
		usleep(1000);
	uint64_t count = 0;
	static uint32_t all[16 * MOST];
	for (int number = 0; number < threads; number++) {
		pthread_mutex_lock(&clients[number].lock);
		clients[number].until = 0;
		memcpy(all + count, clients[number].times, clients[number].count * sizeof *all);
		count += clients[number].count;
		pthread_mutex_unlock(&clients[number].lock);
	}
	qsort(all, count, sizeof *all, by_length);
	printf("{\"event\":\"slice\",\"count\":%llu,\"p50_ns\":%u,\"p99_ns\":%u}\n", (unsigned long long)count,
	       count ? all[count / 2] : 0, count ? all[count * 99 / 100] : 0);
}

/* The median of some tries. */
static void turns(uint64_t wanted_ns)
{
	const uint64_t trial = 20000;
	uint32_t took[101];
	for (unsigned number = 0; number < 101; number++) {
		uint64_t began = now_ns();
		take_turns(trial);
		took[number] = (uint32_t)(now_ns() - began);
	}
	qsort(took, 101, sizeof *took, by_length);
	printf("{\"event\":\"turns\",\"turns\":%llu}\n", (unsigned long long)(wanted_ns * trial / took[50]));
}

int main(int count, char **arguments)
{
	if (count != 3 || (threads = atoi(arguments[2])) > 16)
		return 2;
	clients = calloc((size_t)threads + 1, sizeof *clients);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	strncpy(address.sun_path, arguments[1], sizeof address.sun_path - 1);
	for (int number = 0; number < threads; number++) {
		pthread_t thread;
		clients[number].connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(clients[number].connection, (struct sockaddr *)&address, sizeof address))
			return 1;
		pthread_mutex_init(&clients[number].lock, NULL);
		if (pthread_create(&thread, NULL, ask, clients + number))
			return 1;
	}
	printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	char command[16];
	unsigned long long value;
	while (scanf("%15s %llu", command, &value) == 2) {
		if (command[0] == 's')
			slice(value);
		else
			turns(value);
		printf("{\"event\":\"done\",\"command\":\"%s\"}\n", command);
		fflush(stdout);
	}
	return 0;
}
