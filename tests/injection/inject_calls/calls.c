/* Waits in the system call that its argument names, then says what came of it: result, errno, and milliseconds.
 * `calls NAME TIME_MS` prints "ready", waits, and prints "RESULT ERRNO MILLISECONDS". Untimed calls are ended by a line on
 * standard input, through a thread of its own. `calls` alone lists the names, each with how it ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <mqueue.h>

static int standby[2], pipes[2], sockets[2], epolls, eventfd_, timerfd_, listener, queue, semaphores, locked, inotify_;
static char folder[] = "/tmp/speed-bump-XXXXXX", fifo[64], file[64];
static uint32_t word;
static pid_t child;
static aio_context_t aio;
static sigset_t usr1;
static mqd_t mq;
static int time_ms;
static struct timespec span;
static struct timeval short_span;

static struct timespec at(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	now.tv_sec += span.tv_sec;
	now.tv_nsec += span.tv_nsec;
	if (now.tv_nsec >= 1000000000) {
		now.tv_sec++;
		now.tv_nsec -= 1000000000;
	}
	return now;
}

static long with_timeout(int option)
{
	return setsockopt(sockets[0], SOL_SOCKET, option, &short_span, sizeof short_span);
}

/* Timed. */
static long nanosleep_(void) { return nanosleep(&span, 0); }
static long clock_nanosleep_(void) { errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &span, 0); return errno ? -1 : 0; }
static long clock_nanosleep_abs(void) { struct timespec t = at(CLOCK_REALTIME); errno = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, 0); return errno ? -1 : 0; }
static long poll_(void) { struct pollfd p = { pipes[0], POLLIN, 0 }; return poll(&p, 1, time_ms); }
static long ppoll_(void) { struct pollfd p = { pipes[0], POLLIN, 0 }; return ppoll(&p, 1, &span, &usr1); }
static long select_(void) { fd_set s; FD_ZERO(&s); FD_SET(pipes[0], &s); struct timeval t = short_span; return syscall(SYS_select, pipes[0] + 1, &s, 0, 0, &t); }
static long pselect_(void) { fd_set s; FD_ZERO(&s); FD_SET(pipes[0], &s); return pselect(pipes[0] + 1, &s, 0, 0, &span, &usr1); }
static long epoll_wait_(void) { struct epoll_event e; return syscall(SYS_epoll_wait, epolls, &e, 1, time_ms); }
static long epoll_pwait_(void) { struct epoll_event e; return epoll_pwait(epolls, &e, 1, time_ms, &usr1); }
static long futex_abs(void) { struct timespec t = at(CLOCK_MONOTONIC); return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, &t, 0, ~0u); }
static long futex_real(void) { struct timespec t = at(CLOCK_REALTIME); return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, 0, &t, 0, ~0u); }
static long recv_timeout(void) { char c; with_timeout(SO_RCVTIMEO); return recv(sockets[0], &c, 1, 0); }
static long sigtimedwait_(void) { return sigtimedwait(&usr1, 0, &span); }
static long semtimedop_(void) { struct sembuf b = { 0, -1, 0 }; return semtimedop(semaphores, &b, 1, &span); }
static long io_getevents_(void) { struct io_event e; return syscall(SYS_io_getevents, aio, 1, 1, &e, &span); }
static long mq_timedreceive_(void) { char c[64]; struct timespec t = at(CLOCK_REALTIME); return mq_timedreceive(mq, c, sizeof c, 0, &t); }
/* Until a line comes. */
static long poll_forever(void) { struct pollfd p = { pipes[0], POLLIN, 0 }; return poll(&p, 1, -1); }
static long epoll_forever(void) { struct epoll_event e; return epoll_wait(epolls, &e, 1, -1); }
static long select_forever(void) { fd_set s; FD_ZERO(&s); FD_SET(pipes[0], &s); return select(pipes[0] + 1, &s, 0, 0, 0); }
static long read_pipe(void) { char c; return read(pipes[0], &c, 1); }
static long write_pipe(void) { static char full[1 << 17]; return write(pipes[1], full, sizeof full); }
static long read_eventfd(void) { uint64_t n; return read(eventfd_, &n, 8); }
static long read_timerfd(void) { struct itimerspec i = { { 0, 0 }, span }; timerfd_settime(timerfd_, 0, &i, 0); uint64_t n; return read(timerfd_, &n, 8); }
static long read_inotify(void) { char b[512]; return read(inotify_, b, sizeof b) > 0; }
static long recv_(void) { char c; return recv(sockets[0], &c, 1, 0); }
static long recvmsg_(void) { char c; struct iovec v = { &c, 1 }; struct msghdr m = { 0 }; m.msg_iov = &v; m.msg_iovlen = 1; return recvmsg(sockets[0], &m, 0); }
static long accept_(void) { return accept(listener, 0, 0) >= 0; }
static long futex_forever(void) { return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, 0, 0, ~0u); }
static long wait4_(void) { int s; return wait4(child, &s, 0, 0) == child; }
static long waitid_(void) { siginfo_t i; return waitid(P_PID, child, &i, WEXITED); }
static long pause_(void) { return pause(); }
static long sigsuspend_(void) { sigset_t none; sigemptyset(&none); return sigsuspend(&none); }
static long sigwaitinfo_(void) { return sigwaitinfo(&usr1, 0); }
static long msgrcv_(void) { struct { long t; char c[8]; } m; return msgrcv(queue, &m, 8, 0, 0); }
static long semop_(void) { struct sembuf b = { 0, -1, 0 }; return semop(semaphores, &b, 1); }
static long flock_(void) { int f = open(file, O_RDWR); return flock(f, LOCK_EX); }
static long fcntl_(void) { struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 1 }; int f = open(file, O_RDWR); return fcntl(f, F_SETLKW, &l); }
static long open_fifo(void) { return open(fifo, O_RDONLY) >= 0; }

enum end { TIMED, PIPE, DRAIN, EVENT, SOCKET, CONNECT, WAKE, CHILD, SIGNAL, MESSAGE, POST, UNLOCK, FIFO, TOUCH };
static const struct { const char *name; long (*wait)(void); enum end end; } calls[] = {
	{ "nanosleep", nanosleep_, TIMED }, { "clock_nanosleep", clock_nanosleep_, TIMED },
	{ "clock_nanosleep_abs", clock_nanosleep_abs, TIMED }, { "poll", poll_, TIMED }, { "ppoll", ppoll_, TIMED },
	{ "select", select_, TIMED }, { "pselect", pselect_, TIMED }, { "epoll_wait", epoll_wait_, TIMED },
	{ "epoll_pwait", epoll_pwait_, TIMED }, { "futex_abs", futex_abs, TIMED }, { "futex_real", futex_real, TIMED },
	{ "recv_timeout", recv_timeout, TIMED }, { "sigtimedwait", sigtimedwait_, TIMED },
	{ "semtimedop", semtimedop_, TIMED }, { "io_getevents", io_getevents_, TIMED },
	{ "mq_timedreceive", mq_timedreceive_, TIMED }, { "read_timerfd", read_timerfd, TIMED },
	{ "poll_forever", poll_forever, PIPE }, { "epoll_forever", epoll_forever, PIPE },
	{ "select_forever", select_forever, PIPE }, { "read_pipe", read_pipe, PIPE }, { "write_pipe", write_pipe, DRAIN },
	{ "read_eventfd", read_eventfd, EVENT }, { "read_inotify", read_inotify, TOUCH }, { "recv", recv_, SOCKET },
	{ "recvmsg", recvmsg_, SOCKET }, { "accept", accept_, CONNECT }, { "futex_forever", futex_forever, WAKE },
	{ "wait4", wait4_, CHILD }, { "waitid", waitid_, CHILD }, { "pause", pause_, SIGNAL },
	{ "sigsuspend", sigsuspend_, SIGNAL }, { "sigwaitinfo", sigwaitinfo_, SIGNAL }, { "msgrcv", msgrcv_, MESSAGE },
	{ "semop", semop_, POST }, { "flock", flock_, UNLOCK }, { "fcntl", fcntl_, UNLOCK }, { "open_fifo", open_fifo, FIFO },
};

static pthread_t waiter;

static void handler(int signal) { (void)signal; }

static void *finish(void *end)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct { long t; char c[8]; } message = { 1, "x" };
	struct sembuf post = { 0, 1, 0 };
	/* In a call that no thread is borrowed out of, so that it is always the other one. */
	if (tee(0, standby[1], 8, 0) < 1)
		return 0;
	switch (*(const enum end *)end) {
	case TIMED: break;
	case PIPE: if (write(pipes[1], "x", 1) != 1) abort(); break;
	case DRAIN: for (int left = 1 << 17; left > 0;) { static char b[4096]; left -= read(pipes[0], b, sizeof b); } break;
	case EVENT: eventfd_write(eventfd_, 1); break;
	case SOCKET: send(sockets[1], "x", 1, 0); break;
	case CONNECT: {
		socklen_t n = sizeof a;
		getsockname(listener, (struct sockaddr *)&a, &n);
		connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&a, n);
		break;
	}
	case WAKE: syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0); break;
	case CHILD: kill(child, SIGKILL); break;
	case SIGNAL: pthread_kill(waiter, SIGUSR1); break;
	case MESSAGE: msgsnd(queue, &message, 8, 0); break;
	case POST: semop(semaphores, &post, 1); break;
	case UNLOCK: close(locked); kill(child, SIGKILL); break;
	case FIFO: { int f = open(fifo, O_WRONLY); (void)f; break; }
	case TOUCH: close(open(file, O_RDWR)); break;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
			printf("%s %s\n", calls[i].name, calls[i].end == TIMED ? "timed" : "untimed");
		return 0;
	}
	time_ms = atoi(argv[2]);
	span = (struct timespec){ time_ms / 1000, time_ms % 1000 * 1000000 };
	short_span = (struct timeval){ time_ms / 1000, time_ms % 1000 * 1000 };
	size_t i = 0;
	while (strcmp(calls[i].name, argv[1]))
		i++;
	if (!mkdtemp(folder))
		return 1;
	snprintf(fifo, sizeof fifo, "%s/fifo", folder);
	snprintf(file, sizeof file, "%s/file", folder);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	struct sigaction action = { .sa_handler = handler };
	sigaction(SIGUSR1, &action, 0);
	if (calls[i].wait == sigtimedwait_ || calls[i].wait == sigwaitinfo_ || calls[i].wait == sigsuspend_)
		pthread_sigmask(SIG_BLOCK, &usr1, 0);
	epolls = epoll_create1(0);
	eventfd_ = eventfd(0, 0);
	timerfd_ = timerfd_create(CLOCK_MONOTONIC, 0);
	inotify_ = inotify_init();
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un abstract = { .sun_family = AF_UNIX };
	queue = msgget(IPC_PRIVATE, 0600);
	semaphores = semget(IPC_PRIVATE, 1, 0600);
	locked = open(file, O_RDWR | O_CREAT, 0600);
	struct mq_attr attributes = { .mq_maxmsg = 1, .mq_msgsize = 64 };
	char name[64];
	snprintf(name, sizeof name, "/speed-bump-%d", getpid());
	mq = mq_open(name, O_RDWR | O_CREAT, 0600, &attributes);
	mq_unlink(name);
	struct epoll_event event = { .events = EPOLLIN };
	if (pipe(standby) || pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || mkfifo(fifo, 0600) ||
	    bind(listener, (struct sockaddr *)&abstract, sizeof(sa_family_t)) || listen(listener, 1) ||
	    epoll_ctl(epolls, EPOLL_CTL_ADD, pipes[0], &event) || syscall(SYS_io_setup, 1, &aio) ||
	    inotify_add_watch(inotify_, file, IN_CLOSE_WRITE) < 0)
		return 2;
	flock(locked, LOCK_EX);
	int ready[2];
	if (pipe(ready))
		return 3;
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(locked);
		struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 1 };
		int f = open(file, O_RDWR);
		fcntl(f, F_SETLK, &l);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	char byte;
	if (read(ready[0], &byte, 1) != 1)
		return 4;
	if (calls[i].wait == write_pipe)
		for (int n = 0; n < 16; n++)
			if (write(pipes[1], (char[4096]){ 0 }, 4096) != 4096)
				return 5;
	waiter = pthread_self();
	/* So that the other thread takes no part: it waits where nothing is borrowed. */
	pthread_t other;
	enum end end = calls[i].end;
	pthread_create(&other, 0, finish, &end);
	printf("ready\n");
	fflush(stdout);
	struct timespec before, after;
	clock_gettime(CLOCK_MONOTONIC, &before);
	errno = 0;
	long result = calls[i].wait();
	int error = result < 0 ? errno : 0;
	clock_gettime(CLOCK_MONOTONIC, &after);
	kill(child, SIGKILL);
	msgctl(queue, IPC_RMID, 0);
	semctl(semaphores, 0, IPC_RMID);
	unlink(fifo);
	unlink(file);
	rmdir(folder);
	printf("%ld %d %ld\n", result, error,
	       (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000);
	return 0;
}
