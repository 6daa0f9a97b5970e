/* SPDX-License-Identifier: BSD-3-Clause */
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "control.h"
#include "daemon.h"
#include "job.h"
#include "log.h"
#include "private_mount.h"
#include "report.h"
#include "words.h"

/* How long the end of a run waits for the daemon: for its report, and to go away. A
 * daemon that still serves processes which the command left behind outlives this. */
#define REPORT_MS 5000
#define GONE_MS 3000

struct supervisor {
	const struct clair_run *run;
	char *path;     /* of the source, absolute */
	int source_fd;  /* the folder below the mount, O_PATH */
	int lifeline;   /* ours; the daemon has the other end */
	int ready;      /* the daemon's line: empty when it serves, else what is wrong */
	int go;         /* to the command: closed without a byte means give up */
	int failed;     /* from the command: what went wrong before its exec */
	pid_t daemon, command;
	int link;       /* the daemon's, to the peer process; -1: no job */
	pid_t peer;
	int user_ns, mount_ns;
	bool daemon_ended;
	int daemon_status;
};

static void say(const char *line)
{
	fprintf(stderr, "clairfs: %s\n", line);
}

/* --- descriptors between the processes ------------------------------------------- */

static int send_fds(int sock, const int fds[2])
{
	char byte = 0, space[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space,
			      .msg_controllen = sizeof space };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(2 * sizeof(int));
	memcpy(CMSG_DATA(c), fds, 2 * sizeof(int));
	return sendmsg(sock, &msg, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

static int receive_fds(int sock, int fds[2])
{
	char byte, space[CMSG_SPACE(2 * sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space,
			      .msg_controllen = sizeof space };
	ssize_t n;

	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : -EPIPE;
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(2 * sizeof(int)))
		return -EPROTO;
	memcpy(fds, CMSG_DATA(c), 2 * sizeof(int));
	return 0;
}

/* Reads all until the other side closes: the text, heap, "" for none. */
static char *read_all(int fd)
{
	size_t have = 0;
	char *text = calloc(1, 4096);

	while (text && have < 4095) {
		ssize_t n = read(fd, text + have, 4095 - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		have += n;
	}
	return text;
}

/* --- the daemon ------------------------------------------------------------------ */

static _Noreturn void be_daemon(struct supervisor *s, int lifeline, int ready, int fds_from)
{
	int fds[2];

	setsid(); /* ^C reaches the command, not the daemon */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
	}
	close(s->lifeline);
	close(s->go);
	close(s->ready);
	close(s->failed);
	if (receive_fds(fds_from, fds) < 0)
		_exit(1); /* the command's side has said why */
	close(fds_from);
	struct clair_daemon_config config = {
		.options = s->run->options,
		.source_fd = s->source_fd,
		.source_path = s->path,
		.mountpoint = s->path,
		.fuse_fd = fds[0],
		.root_fd = fds[1],
		.ready_fd = ready,
		.link_fd = s->link,
		.lifeline_fd = lifeline,
	};
	exit(clair_daemon_run(&config));
}

static int spawn_daemon(struct supervisor *s, int fds_from, int fds_to)
{
	int line[2], pipe_fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) < 0)
		return -errno;
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	s->lifeline = line[0];
	s->ready = pipe_fds[0];
	s->daemon = fork();
	if (s->daemon < 0)
		return -errno;
	if (s->daemon == 0) {
		close(fds_to);
		be_daemon(s, line[1], pipe_fds[1], fds_from);
	}
	close(line[1]);
	close(pipe_fds[1]);
	return 0;
}

/* --- the command ----------------------------------------------------------------- */

static _Noreturn void be_command(struct supervisor *s, int go, int failed, int fds_to)
{
	autofree char *cwd = getcwd(NULL, 0);
	char *error = NULL;
	char byte;
	int fds[2];

	int r = clair_private_mount(s->path, s->run->options->read_only, &fds[0], &fds[1],
				    &error);
	if (r < 0) {
		dprintf(failed, "%s", error ? error : strerror(-r));
		_exit(1);
	}
	r = send_fds(fds_to, fds);
	close(fds_to);
	close(fds[0]);
	close(fds[1]);
	/* Without a byte the mount did not come to be, and somebody else has told it. */
	if (r < 0 || read(go, &byte, 1) != 1)
		_exit(1);
	/* The working directory may lie below the mount: enter it again. */
	if (cwd && chdir(cwd) < 0)
		dprintf(STDERR_FILENO, "clairfs: warning: cannot enter %s again: %s\n", cwd,
			strerror(errno));
	if (s->peer > 0)
		clair_job_clean_environment();
	/* PR_SET_DUMPABLE and the like are as exec makes them. */
	execvp(s->run->command[0], s->run->command);
	r = errno;
	dprintf(failed, "cannot run %s: %s", s->run->command[0], strerror(r));
	_exit(r == ENOENT || r == ENOTDIR ? 127 : 126);
}

static int spawn_command(struct supervisor *s, int fds_to)
{
	int go[2], failed[2];

	if (pipe2(go, O_CLOEXEC) < 0 || pipe2(failed, O_CLOEXEC) < 0)
		return -errno;
	s->go = go[1];
	s->failed = failed[0];
	s->command = fork();
	if (s->command < 0)
		return -errno;
	if (s->command == 0) {
		close(s->go);
		close(s->lifeline);
		be_command(s, go[0], failed[1], fds_to);
	}
	close(go[0]);
	close(failed[1]);
	return 0;
}

/* --- signals --------------------------------------------------------------------- */

static volatile sig_atomic_t forward_to, told_to_end;

static void forward(int sig)
{
	int saved = errno;

	if (forward_to > 0)
		kill(forward_to, sig);
	else if (sig == SIGTERM || sig == SIGHUP)
		told_to_end = 1;
	errno = saved;
}

/* ^C and ^\ come from the terminal to the command itself; what is sent to us alone goes
 * on to the command, whose end then ends us. Inherited ignoring (nohup) is kept. */
static void forward_signals(pid_t command)
{
	static const int passed[] = { SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH };
	struct sigaction action = { .sa_handler = forward, .sa_flags = SA_RESTART }, old;

	forward_to = command;
	for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++) {
		sigaction(passed[i], NULL, &old);
		if (old.sa_handler != SIG_IGN)
			sigaction(passed[i], &action, NULL);
	}
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
}

/* --- the run --------------------------------------------------------------------- */

static void daemon_died(struct supervisor *s, int status)
{
	s->daemon_ended = true;
	s->daemon_status = status;
	int r = clair_private_unmount(s->user_ns, s->mount_ns, s->path);
	if (r < 0 && r != -EINVAL)
		log_error("the mount's daemon died, and %s could not be uncovered: %s",
			  s->path, strerror(-r));
	else
		log_error("the mount's daemon died (%s %d): the command reads %s directly "
			  "from now on",
			  WIFSIGNALED(status) ? "signal" : "status",
			  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
			  s->path);
}

/* Waits for the command; lives through the daemon's death. Returns the wait status. */
static int wait_for_command(struct supervisor *s)
{
	for (;;) {
		siginfo_t what;
		int status;
		if (waitid(P_ALL, 0, &what, WEXITED | WSTOPPED | WNOWAIT) < 0) {
			if (errno == EINTR)
				continue;
			return 1 << 8;
		}
		/* ^Z stops us as well, right here; once `fg` has woken both, the command's
		 * stop is no longer there to be fetched and must not stop us again. */
		pid_t pid = waitpid(what.si_pid, &status, WUNTRACED | WNOHANG);
		if (pid == s->command && WIFSTOPPED(status)) {
			/* As a shell's child does: the shell sees us stop, and `fg` wakes
			 * the process group, hence the command too. */
			raise(SIGSTOP);
			kill(s->command, SIGCONT);
		} else if (pid == s->command) {
			return status;
		} else if (pid == s->daemon && !WIFSTOPPED(status)) {
			daemon_died(s, status);
		}
	}
}

static void write_report(const struct supervisor *s, const json_t *report)
{
	if (s->run->report_file && report &&
	    json_dump_file(report, s->run->report_file, JSON_INDENT(2)) < 0)
		log_error("cannot write the report to %s: %m", s->run->report_file);
}

/* Whoever waits for the file finds one that says why there is nothing in it. */
static void report_error(const struct supervisor *s, const char *error)
{
	json_t *source = json_string(s->path); /* NULL: not UTF-8 */
	json_t *report = json_pack("{s:s, s:o*, s:s}", "version", CLAIR_VERSION, "source",
				   source, "error", error);

	write_report(s, report);
	json_decref(report);
}

static void tell_report(struct supervisor *s)
{
	json_t *report = NULL;

	if (s->daemon_ended)
		report_error(s, "the mount's daemon died during the run");
	if (s->daemon_ended || (s->run->quiet && !s->run->report_file))
		return;
	int r = clair_control_report(s->daemon, REPORT_MS, &report);
	if (r < 0) {
		log_warning("no report from the mount's daemon: %s", strerror(-r));
		report_error(s, "the mount's daemon gave no report");
		return;
	}
	write_report(s, report);
	if (!s->run->quiet)
		clair_report_print(report, stderr);
	json_decref(report);
}

/* In a job this node goes on giving what it keeps until the others' commands have ended, unless
 * this command failed: then the launcher shall see it. */
static void wait_for_job(struct supervisor *s, int status)
{
	json_t *question = json_pack("{s:s}", "do", "done");
	bool all = s->peer <= 0 || status != 0;

	forward_to = 0; /* the number may be another process's by now */
	while (!all && !told_to_end && !s->daemon_ended) {
		json_t *answer = NULL;
		int r = clair_control_ask(s->daemon, question, REPORT_MS, &answer);

		all = r < 0 || json_is_true(json_object_get(answer, "all"));
		json_decref(answer);
		if (waitpid(s->daemon, NULL, WNOHANG) == s->daemon)
			s->daemon_ended = true;
		if (!all)
			poll(NULL, 0, 100);
	}
	json_decref(question);
}

/* Takes its leave of the job by itself once the daemon is gone. */
static void wait_for_peer(struct supervisor *s)
{
	int64_t end = clair_now_ns() + GONE_MS * CLAIR_NS_PER_MS;

	while (s->peer > 0 && clair_now_ns() < end && waitpid(s->peer, NULL, WNOHANG) == 0)
		poll(NULL, 0, 5);
}

static void wait_for_daemon(struct supervisor *s)
{
	int64_t end = clair_now_ns() + GONE_MS * CLAIR_NS_PER_MS;

	close(take_fd(s->lifeline));
	if (s->mount_ns >= 0)
		close(take_fd(s->mount_ns));
	if (s->user_ns >= 0)
		close(take_fd(s->user_ns));
	while (!s->daemon_ended && clair_now_ns() < end) {
		int status;
		if (waitpid(s->daemon, &status, WNOHANG) == s->daemon)
			s->daemon_ended = true;
		else
			poll(NULL, 0, 5);
	}
	if (!s->daemon_ended)
		log_info("the mount goes on for processes that the command left behind");
}

/* From the spawned processes to the command's exec. Returns 0, or the exit status. */
static int begin(struct supervisor *s)
{
	autofree char *line = NULL;
	autofree char *failed = NULL;
	struct pollfd p[2] = { { s->ready, POLLIN, 0 }, { s->failed, POLLIN, 0 } };

	while (poll(p, 2, -1) < 0 && errno == EINTR)
		;
	if (!p[1].revents) {
		line = read_all(s->ready);
		if (line && !strcmp(line, CLAIR_DAEMON_READY)) {
			int r = clair_private_namespaces(s->command, &s->user_ns,
							 &s->mount_ns);
			if (r < 0)
				log_warning("cannot see the command's namespaces: %s",
					    strerror(-r));
			forward_signals(s->command);
			if (write(s->go, "g", 1) == 1) {
				close(take_fd(s->go));
				return 0;
			}
		}
	}
	/* Something went wrong: whoever knows has written a line, or it has on stderr. */
	close(take_fd(s->go));
	close(take_fd(s->lifeline));
	failed = read_all(s->failed);
	if (failed && *failed)
		say(failed);
	else if (line && *line && strcmp(line, CLAIR_DAEMON_READY))
		say(line);
	if (s->peer > 0)
		kill(s->peer, SIGKILL);
	kill(s->daemon, SIGTERM);
	int status = 1 << 8;
	waitpid(s->daemon, &status, 0);
	waitpid(s->command, NULL, 0);
	if (failed && *failed)
		return 1;
	return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 1;
}

static int supervise(struct supervisor *s)
{
	int r = begin(s);
	if (r)
		return r;
	int status = wait_for_command(s);
	autofree char *failed = read_all(s->failed); /* "" when the exec went well */
	if (failed && *failed)
		say(failed);
	wait_for_job(s, status);
	tell_report(s);
	wait_for_daemon(s);
	wait_for_peer(s);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int open_source(struct supervisor *s)
{
	s->path = realpath(s->run->source, NULL);
	if (s->path)
		s->source_fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->source_fd < 0) {
		fprintf(stderr, "clairfs: %s: %s%s\n",
			*s->run->source ? s->run->source : "an empty SOURCE", strerror(errno),
			errno == ENOTDIR ? "; SOURCE must be a folder" : "");
		return 2;
	}
	if (!strcmp(s->path, "/")) {
		say("/ cannot be covered; give the folder of the dataset");
		return 2;
	}
	return 0;
}

int clair_run(const struct clair_run *run)
{
	struct supervisor s = { .run = run, .source_fd = -1, .lifeline = -1, .ready = -1,
				.go = -1, .failed = -1, .link = -1, .user_ns = -1, .mount_ns = -1 };
	int fds[2];

	int r = open_source(&s);
	if (r)
		goto end;
	r = 1;
	clair_job_start_peer(run->options, &s.link, &s.peer);
	if (s.link >= 0)
		prctl(PR_SET_PDEATHSIG, SIGTERM); /* the command dies with its job */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ||
	    spawn_daemon(&s, fds[0], fds[1]) < 0) {
		log_error("cannot start the mount's daemon: %m");
		goto end;
	}
	close(fds[0]);
	if (s.link >= 0)
		close(take_fd(s.link));
	if (spawn_command(&s, fds[1]) < 0) {
		log_error("cannot start a process: %m");
		close(fds[1]);
		kill(s.daemon, SIGKILL);
		waitpid(s.daemon, NULL, 0);
		goto end;
	}
	close(fds[1]);
	r = supervise(&s);
end:
	free(s.path);
	return r;
}
