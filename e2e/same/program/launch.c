/* launch [OPTION]... -- PROGRAM [ARG]... becomes PROGRAM in the state that the options describe:
 *   umask=OCTAL limit=NUMBER:SOFT:HARD ignore=SIGNAL block=SIGNAL nice=N dir=PATH close=FD
 *   in=PATH out=PATH err=PATH append=PATH (standard output) both=PATH (output and error) appends=PATH (both, opened twice)
 * Signals that no option names have their default action. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void fail(const char *what) {
	fprintf(stderr, "launch: %s: %s\n", what, strerror(errno));
	_exit(99);
}

static void put(const char *path, int flags, int fd) {
	int f = open(path, flags, 0666);
	if (f < 0)
		fail(path);
	if (f != fd) {
		dup2(f, fd);
		close(f);
	}
}

static unsigned long block;

static void one(const char *name, char *value) {
	int write = O_WRONLY | O_CREAT;
	if (!strcmp(name, "umask"))
		umask(strtol(value, NULL, 8));
	else if (!strcmp(name, "limit")) {
		char *rest;
		int number = strtol(value, &rest, 10);
		struct rlimit l;
		l.rlim_cur = strtoull(rest + 1, &rest, 10);
		l.rlim_max = strtoull(rest + 1, &rest, 10);
		if (setrlimit(number, &l) != 0)
			fail("limit");
	} else if (!strcmp(name, "ignore"))
		signal(atoi(value), SIG_IGN);
	else if (!strcmp(name, "block"))
		block |= 1UL << (atoi(value) - 1);
	else if (!strcmp(name, "nice")) {
		if (setpriority(PRIO_PROCESS, 0, atoi(value)) != 0)
			fail("nice");
	} else if (!strcmp(name, "dir")) {
		if (chdir(value) != 0)
			fail(value);
	} else if (!strcmp(name, "close"))
		close(atoi(value));
	else if (!strcmp(name, "in"))
		put(value, O_RDONLY, 0);
	else if (!strcmp(name, "out"))
		put(value, write, 1);
	else if (!strcmp(name, "append"))
		put(value, write | O_APPEND, 1);
	else if (!strcmp(name, "err"))
		put(value, write, 2);
	else if (!strcmp(name, "both")) {
		put(value, write, 1);
		dup2(1, 2);
	} else if (!strcmp(name, "appends")) {
		put(value, write | O_APPEND, 1);
		put(value, write | O_APPEND, 2);
	} else {
		errno = EINVAL;
		fail(name);
	}
}

int main(int argc, char **argv) {
	for (int s = 1; s < 65; s++)
		signal(s, SIG_DFL);
	close_range(3, ~0U, 0);
	int i = 1;
	for (; i < argc && strcmp(argv[i], "--"); i++) {
		char *eq = strchr(argv[i], '=');
		if (!eq)
			fail(argv[i]);
		*eq = 0;
		one(argv[i], eq + 1);
	}
	if (i + 1 >= argc)
		return 98;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &block, NULL, sizeof block);
	execvp(argv[i + 1], argv + i + 1);
	fail(argv[i + 1]);
}
