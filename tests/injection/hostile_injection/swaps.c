// Puts a descriptor of its own choice where the next descriptor of the process will be, again and again, while the main
// thread waits to be borrowed.
//
//     swaps thread|process PATH     as nobody; PATH may be a file that nobody can neither read nor write
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NOBODY = 65534 };

static int chosen, next;

static void *swap(void *nothing) {
    for (;;) {
        // Only once something lies there: the number must stay free for what is to be replaced.
        if (fcntl(next, F_GETFD) != -1) {
            dup2(chosen, next);
            usleep(20000);
            close(next);
        }
    }
    return nothing;
}

int main(int count, char **arguments) {
    if (count != 3 || setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
        return 2;
    // Without, only root could read its /proc directory, which makes no difference to root.
    prctl(PR_SET_DUMPABLE, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    chosen = open(arguments[2], O_PATH);
    next = chosen < 0 ? -1 : dup(chosen);
    if (next < 0)
        return 3;
    close(next);
    if (strcmp(arguments[1], "process") == 0) {
        // Another process with the same table of descriptors.
        if (syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            swap(NULL);
        }
    } else {
        pthread_t thread;
        if (pthread_create(&thread, NULL, swap, NULL))
            return 4;
    }
    if (write(1, "\n", 1) != 1)
        return 5;
    for (;;)
        pause();
}
