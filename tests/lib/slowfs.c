/* SPDX-License-Identifier: BSD-3-Clause */
/* A folder, read only, as a slow shared parallel file system shows it: see usage(). Nothing
 * is cached by the kernel, so every read costs. Runs in the foreground. */
#define FUSE_USE_VERSION 314
#include <fuse.h>
#include <fuse_lowlevel.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "slowfs_model.h"

static int source_fd;
static const char *mount_point;
static int control_fd = -1;

static const char *relative(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static int check(enum slow_op op, const char *path)
{
	struct slow_verdict v = slow_enter(op, path);

	return v.fault == SLOW_ERRNO ? -v.value : 0;
}

static int slow_getattr(const char *path, struct stat *st, struct fuse_file_info *file)
{
	int r = check(SLOW_GETATTR, path);

	(void)file;
	if (!r && fstatat(source_fd, relative(path), st, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	return r;
}

static int slow_readlink(const char *path, char *target, size_t size)
{
	int r = check(SLOW_READLINK, path);
	ssize_t n = r ? 0 : readlinkat(source_fd, relative(path), target, size - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	return r;
}

static int slow_readdir(const char *path, void *out, fuse_fill_dir_t fill, off_t offset,
			struct fuse_file_info *file, enum fuse_readdir_flags flags)
{
	(void)offset;
	(void)file;
	int r = check(SLOW_READDIR, path);
	if (r)
		return r;
	int fd = openat(source_fd, relative(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return -errno;
	for (struct dirent *e; (e = readdir(dir));) {
		struct stat st = { .st_ino = e->d_ino, .st_mode = (mode_t)DTTOIF(e->d_type) };
		enum fuse_fill_dir_flags plus = 0;

		if ((flags & FUSE_READDIR_PLUS) && !fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			plus = FUSE_FILL_DIR_PLUS;
		fill(out, e->d_name, &st, 0, plus);
	}
	closedir(dir);
	return 0;
}

static int slow_open(const char *path, struct fuse_file_info *file)
{
	if ((file->flags & O_ACCMODE) != O_RDONLY)
		return -EROFS;
	int r = check(SLOW_OPEN, path);
	if (r)
		return r;
	int fd = openat(source_fd, relative(path), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	file->fh = (uint64_t)fd;
	file->direct_io = 1;
	return 0;
}

static int slow_read(const char *path, char *out, size_t size, off_t offset,
		     struct fuse_file_info *file)
{
	struct slow_verdict v = slow_enter(SLOW_READ, path);

	if (v.fault == SLOW_ERRNO)
		return -v.value;
	if (v.fault == SLOW_SHORT && size > 1)
		size /= 2;
	ssize_t n = pread((int)file->fh, out, size, offset);
	if (n < 0)
		return -errno;
	if (v.fault == SLOW_GARBLE && n > 0)
		out[n / 2] ^= 1;
	slow_transfer(path, (size_t)n);
	return (int)n;
}

static int slow_release(const char *path, struct fuse_file_info *file)
{
	(void)path;
	close((int)file->fh);
	return 0;
}

static int slow_statfs(const char *path, struct statvfs *st)
{
	(void)path;
	return fstatvfs(source_fd, st) < 0 ? -errno : 0;
}

static int slow_getxattr(const char *path, const char *name, char *value, size_t size)
{
	char real[64 + 4096];
	int r = check(SLOW_XATTR, path);

	snprintf(real, sizeof real, "/proc/self/fd/%d/%s", source_fd, relative(path));
	ssize_t n = r ? r : lgetxattr(real, name, value, size);
	return r ? r : n < 0 ? -errno : (int)n;
}

static int slow_listxattr(const char *path, char *list, size_t size)
{
	char real[64 + 4096];
	int r = check(SLOW_XATTR, path);

	snprintf(real, sizeof real, "/proc/self/fd/%d/%s", source_fd, relative(path));
	ssize_t n = r ? r : llistxattr(real, list, size);
	return r ? r : n < 0 ? -errno : (int)n;
}

static double cache_seconds;

static void *slow_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
	conn->max_background = 256;
	conn->congestion_threshold = 256;
	config->use_ino = 1;
	config->nullpath_ok = 0;
	config->entry_timeout = cache_seconds;
	config->attr_timeout = cache_seconds;
	config->negative_timeout = 0;
	return NULL;
}

static const struct fuse_operations operations = {
	.init = slow_init,
	.getattr = slow_getattr,
	.readlink = slow_readlink,
	.readdir = slow_readdir,
	.open = slow_open,
	.read = slow_read,
	.release = slow_release,
	.statfs = slow_statfs,
	.getxattr = slow_getxattr,
	.listxattr = slow_listxattr,
};

/* The end: hanging calls are let go; clients that still wait get ENOTCONN. */
static void *signals_main(void *set)
{
	int signal;

	sigwait(set, &signal);
	slow_stop();
	if (umount2(mount_point, MNT_DETACH) < 0) {
		char *argv[] = { (char[]){ "fusermount3" }, (char[]){ "-uzq" }, NULL, NULL };
		pid_t pid = fork();

		argv[2] = strdup(mount_point);
		if (!pid) {
			execvp(argv[0], argv);
			_exit(127);
		}
	}
	_exit(0);
}

static void answer(FILE *peer, char *line)
{
	char *rest = line + strcspn(line, " ");

	if (*rest)
		*rest++ = '\0';
	int r = 0;
	if (!strcmp(line, "stats")) {
		slow_report(peer);
	} else if (!strcmp(line, "files")) {
		slow_report_files(peer);
	} else if (!strcmp(line, "reset")) {
		slow_reset();
	} else if (!strcmp(line, "fault")) {
		r = slow_fault_add(rest);
	} else if (!strcmp(line, "clear")) {
		slow_fault_clear();
	} else if (!strcmp(line, "set") && strchr(rest, '=')) {
		char *value = strchr(rest, '=');

		*value++ = '\0';
		r = slow_set(rest, value);
	} else {
		r = -EINVAL;
	}
	if (r < 0)
		fprintf(peer, "error: %s\n", strerror(-r));
}

static void *control_main(void *unused)
{
	for (;;) {
		int fd = accept4(control_fd, NULL, NULL, SOCK_CLOEXEC);
		FILE *peer = fd < 0 ? NULL : fdopen(fd, "r+");
		char line[1024];

		if (!peer)
			continue;
		if (fgets(line, sizeof line, peer)) {
			line[strcspn(line, "\n")] = '\0';
			fseek(peer, 0, SEEK_CUR);
			answer(peer, line);
		}
		fclose(peer);
	}
	return unused;
}

static int control_open(const char *path, bool listening)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (listening)
		unlink(path);
	int r = listening ? bind(fd, (struct sockaddr *)&address, sizeof address) :
			    connect(fd, (struct sockaddr *)&address, sizeof address);
	if (r < 0 || (listening && listen(fd, 8) < 0)) {
		fprintf(stderr, "slowfs: %s: %m\n", path);
		exit(1);
	}
	return fd;
}

/* slowfs --ask SOCKET WORD…: prints the answer. */
static int ask(int argc, char **argv)
{
	int fd = control_open(argv[2], false), bad = 0;
	char text[4096];

	for (int i = 3; i < argc; i++)
		dprintf(fd, "%s%s", argv[i], i + 1 < argc ? " " : "\n");
	shutdown(fd, SHUT_WR);
	bool first = true;
	for (ssize_t n; (n = read(fd, text, sizeof text)) > 0; first = false) {
		bad |= first && n >= 6 && !strncmp(text, "error:", 6);
		fwrite(text, 1, (size_t)n, bad ? stderr : stdout);
	}
	return bad ? 2 : 0;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: slowfs SOURCE MOUNTPOINT [--control SOCKET] [--fuse OPTIONS] [KEY=VALUE]...\n"
		"       slowfs --ask SOCKET stats | files | reset | clear | set KEY=VALUE |\n"
		"              fault KIND [op=OP] [path=GLOB] [from=N] [count=M]\n"
		"keys: latency=MICROSECONDS bandwidth=BYTES_S|CLIENTS:BYTES_S,... metadata=OPS_S\n"
		"      cache=SECONDS (of attributes, 0)\n"
		"kinds: eio estale errno:N hang[:MS] short garble delay:MS; paths begin with /\n");
	return 2;
}

static int parse(int argc, char **argv, struct fuse_args *args, const char **control)
{
	for (int i = 3; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!strcmp(argv[i], "--control") && i + 1 < argc) {
			*control = argv[++i];
		} else if (!strcmp(argv[i], "--fuse") && i + 1 < argc) {
			fuse_opt_add_arg(args, "-o");
			fuse_opt_add_arg(args, argv[++i]);
		} else if (value && !strncmp(argv[i], "cache=", 6)) {
			cache_seconds = strtod(value + 1, NULL);
		} else if (value) {
			*value++ = '\0';
			if (slow_set(argv[i], value) < 0)
				return -EINVAL;
		} else {
			return -EINVAL;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	const char *control = NULL;
	pthread_t thread;
	static sigset_t set;

	if (argc >= 4 && !strcmp(argv[1], "--ask"))
		return ask(argc, argv);
	fuse_opt_add_arg(&args, "slowfs");
	fuse_opt_add_arg(&args, "-ofsname=slowfs,subtype=slowfs,ro,default_permissions");
	if (!geteuid())
		fuse_opt_add_arg(&args, "-oallow_other");
	if (argc < 3 || parse(argc, argv, &args, &control) < 0)
		return usage();
	mount_point = argv[2];
	source_fd = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (source_fd < 0) {
		fprintf(stderr, "slowfs: %s: %m\n", argv[1]);
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (control)
		control_fd = control_open(control, true);

	struct fuse *fuse = fuse_new(&args, &operations, sizeof operations, NULL);
	if (!fuse || fuse_mount(fuse, mount_point))
		return 1;
	struct fuse_loop_config *loop = fuse_loop_cfg_create();
	fuse_loop_cfg_set_max_threads(loop, 256); /* a call that hangs keeps one */
	fuse_loop_cfg_set_idle_threads(loop, 64);
	pthread_create(&thread, NULL, signals_main, &set);
	if (control)
		pthread_create(&thread, NULL, control_main, NULL);
	fuse_loop_mt(fuse, loop);
	slow_stop();
	_exit(0);
}
