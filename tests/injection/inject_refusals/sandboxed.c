/* Sleeps under the seccomp filter that its argument names. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	unsigned action = SECCOMP_RET_ALLOW;
	if (argc < 2)
		return 1;
	if (!strcmp(argv[1], "kill"))
		action = SECCOMP_RET_KILL_PROCESS;
	if (!strcmp(argv[1], "errno"))
		action = SECCOMP_RET_ERRNO | EPERM;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (!strcmp(argv[1], "strict") ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)
				       : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 2;
	if (write(1, "\n", 1) != 1)
		return 3;
	if (!strcmp(argv[1], "strict")) {
		char byte;
		while (read(0, &byte, 1) > 0)
			;
	}
	for (;;)
		sleep(1);
}
