// Waits, as nobody, and executes a program when it gets SIGUSR1.
//
//     executes PROGRAM
#define _GNU_SOURCE
#include <grp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { NOBODY = 65534 };

int main(int count, char **arguments) {
    sigset_t wanted;
    int got;
    if (count != 2 || setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    if (write(1, "\n", 1) != 1 || sigwait(&wanted, &got))
        return 3;
    char *next[] = {arguments[1], NULL};
    execv(next[0], next);
    return 4;
}
