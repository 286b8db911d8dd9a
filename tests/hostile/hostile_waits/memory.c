/*
 * A process that says it is a CPython 3.12, and whose interpreter lies in memory that nobody fills: whoever
 * reads it waits for ever.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

char _PyRuntime[4096] __attribute__((aligned(4096)));
const unsigned int Py_Version = 0x030c00f0;
void *_PyEval_EvalFrameDefault(void) { return _PyRuntime; }

int main(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register memory = {
		.range = { .start = (uintptr_t)_PyRuntime, .len = sizeof(_PyRuntime) },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	long faults = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &memory)) {
		printf("{\"event\":\"ready\",\"pid\":0}\n");
		return 0;
	}
	printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	for (volatile unsigned long work = 0;; work++)
		;
}
