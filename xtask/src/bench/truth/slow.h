/* How a function is really made slower: work of a known length, and the words that say how much of it.
 *
 * The words lie in a file that the bench writes and the programs map: whether calls are really slowed, by how many
 * turns, and how many turns a request takes in any case. A turn waits for the one before, so that a number of turns
 * takes the same processor time whatever else happens: there is no clock in it.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct words {
	volatile uint64_t is_real, turns, own_turns;
};

static const struct words *words;

/* Maps the file of the words. Whether that worked. */
static inline int words_open(const char *path)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return 0;
	void *mapped = mmap(NULL, sizeof(struct words), PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (mapped == MAP_FAILED)
		return 0;
	words = mapped;
	return 1;
}

static inline uint64_t take_turns(uint64_t turns)
{
	uint64_t value = turns;
	for (uint64_t turn = 0; turn < turns; turn++) {
		value = value * 6364136223846793005u + 1442695040888963407u;
		__asm__ volatile("" : "+r"(value));
	}
	return value;
}

static inline uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
