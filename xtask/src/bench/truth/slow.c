/* The slowed function's work as a library, for the Python servers. They hold the interpreter's lock in it. */
#include "slow.h"

int slow_open(const char *path)
{
	return words_open(path);
}

int slow_is_real(void)
{
	return words->is_real != 0;
}

void slow_own(void)
{
	take_turns(words->own_turns);
}

/* What makes a function slower, and what takes its place in the one that the tool slows. */
void slow_really(void)
{
	take_turns(words->turns);
}

void slow_not(void)
{
	take_turns(0);
}
