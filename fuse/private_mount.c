/* SPDX-License-Identifier: BSD-3-Clause */
#include "private_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "words.h"

static int write_proc(const char *file, const char *text)
{
	autoclose int fd = open(file, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return -errno;
	return 0;
}

/* One id maps to itself: the command keeps its ids, and the mount's user is the user. */
static int map_ids(uid_t uid, gid_t gid)
{
	char text[64];

	int r = write_proc("/proc/self/setgroups", "deny");
	if (r < 0 && r != -ENOENT)
		return r;
	snprintf(text, sizeof text, "%u %u 1", uid, uid);
	r = write_proc("/proc/self/uid_map", text);
	if (r < 0)
		return r;
	snprintf(text, sizeof text, "%u %u 1", gid, gid);
	return write_proc("/proc/self/gid_map", text);
}

static int enter_namespaces(uid_t uid, gid_t gid, char **error)
{
	/* In root's own user namespace chown and setuid go on working. */
	int flags = CLONE_NEWNS | (uid == 0 ? 0 : CLONE_NEWUSER);

	if (unshare(flags) < 0) {
		int r = -errno;
		clair_bad(error,
			  uid == 0 ? "cannot make a mount namespace: %s" :
				     "this machine does not let users make namespaces (%s): "
				     "ask for user.max_user_namespaces > 0 and "
				     "kernel.unprivileged_userns_clone=1, or use `clairfs "
				     "mount`",
			  strerror(-r));
		return r;
	}
	int r = uid == 0 ? 0 : map_ids(uid, gid);
	if (r < 0) {
		clair_bad(error, "cannot map the user's ids into a namespace: %s",
			  strerror(-r));
		return r;
	}
	/* Later mounts of the machine come in, ours does not get out. */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) {
		r = -errno;
		clair_bad(error, "cannot make mounts private: %s", strerror(-r));
		return r;
	}
	return 0;
}

int clair_private_mount(const char *path, bool read_only, int *fuse_fd, int *root_fd,
			char **error)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char options[160];

	int r = enter_namespaces(uid, gid, error);
	if (r < 0)
		return r;
	autoclose int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		r = -errno;
		clair_bad(error, "cannot open /dev/fuse: %s%s", strerror(-r),
			  r == -EACCES ? " (it should be readable and writable by all)" :
			  r == -ENOENT ? " (is the fuse module loaded?)" :
					 "");
		return r;
	}
	/* Without allow_other the kernel asks for the mount's user, inside and outside of
	 * the namespace: that lets the daemon reach its own mount. Root's commands may
	 * become anybody. */
	snprintf(options, sizeof options,
		 "fd=%d,rootmode=%o,user_id=%u,group_id=%u,default_permissions%s", fd,
		 S_IFDIR, uid, gid, uid == 0 ? ",allow_other" : "");
	if (mount("clairfs", path, "fuse.clairfs",
		  MS_NOSUID | MS_NODEV | (read_only ? MS_RDONLY : 0), options) < 0) {
		r = -errno;
		clair_bad(error, "cannot mount over %s: %s", path, strerror(-r));
		return r;
	}
	autoclose int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0) {
		r = -errno;
		clair_bad(error, "cannot open the mount over %s: %s", path, strerror(-r));
		return r;
	}
	*fuse_fd = take_fd(fd);
	*root_fd = take_fd(root);
	return 0;
}

int clair_private_namespaces(int pid, int *user_fd, int *mount_fd)
{
	char file[64];
	struct stat own, other;

	snprintf(file, sizeof file, "/proc/%d/ns/user", pid);
	autoclose int user = open(file, O_RDONLY | O_CLOEXEC);
	if (user < 0 || fstat(user, &other) < 0 || stat("/proc/self/ns/user", &own) < 0)
		return -errno;
	snprintf(file, sizeof file, "/proc/%d/ns/mnt", pid);
	int mnt = open(file, O_RDONLY | O_CLOEXEC);
	if (mnt < 0)
		return -errno;
	*user_fd = own.st_ino == other.st_ino ? -1 : take_fd(user);
	*mount_fd = mnt;
	return 0;
}

int clair_private_unmount(int user_fd, int mount_fd, const char *path)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		if ((user_fd >= 0 && setns(user_fd, CLONE_NEWUSER) < 0) ||
		    setns(mount_fd, CLONE_NEWNS) < 0 || umount2(path, MNT_DETACH | MNT_FORCE) < 0)
			_exit(errno & 127);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}
