// Calls beat() a thousand times a second, and has an executable mapping without a file.
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noinline)) void beat(void) { __asm__ volatile(""); }

int main(int argc, char **argv)
{
	mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (argc > 1 && !strcmp(argv[1], "undumpable"))
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	write(1, "\n", 1);
	for (;;) {
		beat();
		usleep(1000);
	}
}
