/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_KERNEL_H
#define CLAIR_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What the stage asks of the kernel side of the mount. The real one is fuse/kernel.c;
 * the stage's unit tests bring a file-backed one. All return 0 or a negative errno, may
 * block on the kernel, may make it send requests (LOOKUP) to the mount's own threads, and
 * are therefore called without any lock that a request handler takes. All may be called
 * from several threads. */
struct clair_kernel {
	void *self;
	/* Opens the mount's own file without raising an inotify event for the reader's
	 * folder; FRESH: looks ID up on its real path first, so that the kernel knows inode
	 * and name and the reader's lookup is no request. Returns a descriptor (O_RDONLY)
	 * that the caller closes. -ENOTCONN when the mount is gone. */
	int (*open)(void *self, uint32_t id, bool fresh);
	/* Writes SIZE bytes into the page cache at OFFSET (NOTIFY_STORE). -ENOENT: the
	 * kernel does not know the inode (any more): open again. Must not be called from
	 * the handler of a request on the same inode. */
	int (*push)(void *self, uint32_t id, uint64_t offset, const void *data,
		    size_t size);
	/* Touches the pushed pages once, so that the reader's first read does not have to
	 * activate them. Never an error: only slower. */
	void (*touch)(void *self, int fd, uint64_t size);
	/* Gives the pages back; no request, attributes stay valid. */
	int (*drop)(void *self, int fd, uint64_t offset, uint64_t size);
	/* 1 when no reader has the file open or mapped, 0 when one has, or -errno. */
	int (*unused)(void *self, int fd);
	/* Bytes of the file that are in the page cache, or -errno when that cannot be known
	 * (EPERM, ENOSYS). */
	int64_t (*resident)(void *self, int fd, uint64_t size);
	/* The source's file is another one now: the kernel asks for attributes and pages
	 * again. Not from the handler of a request on the same inode. */
	void (*invalidate)(void *self, uint32_t id);
};

#endif
