/* SPDX-License-Identifier: BSD-3-Clause */
/* clairfs mount: returns when the mount serves; its daemon goes on in the background. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "cli.h"
#include "daemon.h"
#include "job.h"
#include "peer_launcher.h"
#include "unmount.h"

int cmd_mount(int argc, char **argv);

struct mount {
	struct cli *cli;
	char *source, *mountpoint; /* absolute */
	int source_fd;
	int link; /* to the peer process, or -1 */
	pid_t peer;
	bool foreground;
};

static int find_places(struct mount *m)
{
	const char *point = m->cli->count > 1 ? m->cli->args[1] : m->cli->args[0];
	struct stat st;
	int status = CLI_OK;

	/* What a killed daemon left in the way: it may cover the source itself. */
	for (size_t i = 0; i < m->cli->count; i++) {
		int r = clair_unmount_dead(m->cli->args[i]);
		if (r < 0)
			return cli_failure("%s: a dead mount is in the way and cannot be "
					   "unmounted: %s",
					   m->cli->args[i], strerror(-r));
	}
	m->source_fd = cli_open_source(m->cli->args[0], &m->source, &status);
	if (m->source_fd < 0)
		return status;
	m->mountpoint = realpath(point, NULL);
	if (!m->mountpoint || stat(m->mountpoint, &st) < 0)
		return cli_mistake("%s: %s; the mount point must be an existing folder", point,
				   strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return cli_mistake("%s: the mount point must be a folder", point);
	if (!strcmp(m->mountpoint, "/"))
		return cli_mistake("/ cannot be covered; give another mount point");
	if (geteuid() && access(m->mountpoint, W_OK) < 0)
		return cli_mistake("%s: a user can mount only over a folder that he may "
				   "write; `clairfs run` has no such limit",
				   m->mountpoint);
	char *error = NULL;
	int r = clair_options_check_source(&m->cli->options, m->source, &error);
	return r < 0 ? cli_error(r, error, "cache") : CLI_OK;
}

static int serve(struct mount *m, int ready_fd)
{
	struct clair_daemon_config config = {
		.options = &m->cli->options,
		.source_fd = m->source_fd,
		.source_path = m->source,
		.mountpoint = m->mountpoint,
		.fuse_fd = -1,
		.root_fd = -1,
		.link_fd = m->link,
		.ready_fd = ready_fd,
		.leave = ready_fd >= 0,
		.lifeline_fd = -1,
	};

	return clair_daemon_run(&config);
}

static _Noreturn void be_daemon(struct mount *m, int ready_fd)
{
	setsid();
	if (chdir("/") < 0)
		_exit(1);
	int null = open("/dev/null", O_RDWR);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	exit(serve(m, ready_fd));
}

/* Under an MPI launcher, which ends the job when this process ends: until the mount is
 * unmounted, and its peer process has taken its leave. SIGTERM from a launcher that lives means
 * the mount; that of its daemons when it has died does not. */
static int stay(const struct mount *m, pid_t daemon)
{
	sigset_t set;
	int status = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	while (waitpid(daemon, &status, WNOHANG) == 0) {
		int sig = sigwaitinfo(&set, NULL);
		if (sig > 0 && sig != SIGCHLD && clair_launcher_lives())
			kill(daemon, SIGTERM);
	}
	waitpid(m->peer, NULL, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : CLI_FAILURE;
}

/* Several that cover the same folder would see each other's mounts. */
static int check_launch(const struct mount *m)
{
	const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");

	if (m->cli->options.peers && clair_job_launched() && local && atoi(local) > 1 &&
	    !strcmp(m->source, m->mountpoint))
		return cli_mistake("the launcher starts %s mounts over %s on this node; one a node is "
				   "right: mpirun -N 1",
				   local, m->source);
	return CLI_OK;
}

static int in_background(struct mount *m)
{
	int ready[2];
	char line[4096];
	size_t have = 0;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return cli_failure("%m");
	pid_t pid = fork();
	if (pid < 0)
		return cli_failure("cannot start a process: %m");
	if (pid == 0) {
		close(ready[0]);
		be_daemon(m, ready[1]);
	}
	close(ready[1]);
	for (ssize_t n; have < sizeof line - 1;) {
		n = read(ready[0], line + have, sizeof line - 1 - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		have += (size_t)n;
	}
	line[have] = '\0';
	if (m->link >= 0)
		close(m->link);
	if (!strcmp(line, CLAIR_DAEMON_READY))
		return m->link >= 0 ? stay(m, pid) : CLI_OK;
	int status = 1 << 8;
	waitpid(pid, &status, 0);
	if (m->link >= 0)
		kill(m->peer, SIGKILL);
	if (!have)
		return cli_failure("the daemon ended before the mount was ready");
	return WIFEXITED(status) && WEXITSTATUS(status) == CLI_MISTAKE ?
		       cli_mistake("%s", line) :
		       cli_failure("%s", line);
}

int cmd_mount(int argc, char **argv)
{
	bool foreground = false;
	const struct cli_flag flags[] = {
		{ "foreground", NULL, "stay until it is unmounted", NULL, &foreground },
		{ NULL },
	};
	const struct cli_spec spec = {
		.verb = "mount",
		.usage = "SOURCE [MOUNTPOINT] [-o OPTIONS] [--foreground]",
		.help = "Mounts SOURCE over MOUNTPOINT (over itself when there is none), and "
			"returns when\nthe mount is ready.",
		.flags = flags,
		.least = 1,
		.most = 2,
	};
	struct cli cli;
	int status;

	if (!cli_parse(&spec, argc, argv, &cli, &status))
		return status;
	struct mount m = { .cli = &cli, .source_fd = -1 };
	status = find_places(&m);
	m.link = -1;
	if (status == CLI_OK)
		status = check_launch(&m);
	if (status == CLI_OK)
		clair_job_start_peer(&cli.options, &m.link, &m.peer);
	if (status == CLI_OK)
		status = foreground ? serve(&m, -1) : in_background(&m);
	if (foreground && m.link >= 0)
		waitpid(m.peer, NULL, 0);
	free(m.source);
	free(m.mountpoint);
	cli_finish(&cli);
	return status;
}
