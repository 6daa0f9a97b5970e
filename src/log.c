/* SPDX-License-Identifier: BSD-3-Clause */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const names[] = { "error", "warning", "info", "debug" };

static _Atomic int threshold = CLAIR_WARNING;
static _Atomic int log_fd = STDERR_FILENO;

int clair_log_setup(const char *spec)
{
	size_t len = strcspn(spec, ":");

	for (int i = 0; i < 4; i++) {
		if (strlen(names[i]) != len || strncmp(names[i], spec, len))
			continue;
		if (spec[len] == ':') {
			int fd = open(spec + len + 1,
				      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
			if (fd < 0)
				return -errno;
			int old = atomic_exchange(&log_fd, fd);
			if (old != STDERR_FILENO)
				close(old);
		}
		atomic_store(&threshold, i);
		return 0;
	}
	return -EINVAL;
}

bool clair_log_wants(enum clair_level level)
{
	return (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

void clair_log(enum clair_level level, const char *format, ...)
{
	char line[4096];
	int saved = errno;
	size_t n = 0;
	va_list ap;

	if (!clair_log_wants(level))
		return;
	int fd = atomic_load(&log_fd);
	if (fd != STDERR_FILENO) {
		struct timespec t;
		struct tm tm;

		clock_gettime(CLOCK_REALTIME, &t);
		localtime_r(&t.tv_sec, &tm);
		n = strftime(line, sizeof line, "%F %T ", &tm);
	}
	n += snprintf(line + n, sizeof line - n, "clairfs: %s%s",
		      level == CLAIR_INFO ? "" : names[level],
		      level == CLAIR_INFO ? "" : ": ");
	errno = saved;
	va_start(ap, format);
	int r = vsnprintf(line + n, sizeof line - n - 1, format, ap);
	va_end(ap);
	if (r > 0)
		n += (size_t)r < sizeof line - n - 1 ? (size_t)r : sizeof line - n - 2;
	line[n++] = '\n';
	/* One write a line, so that lines of several threads do not mix. */
	if (write(fd, line, n) < 0) {
		/* Nobody is left to tell. */
	}
	errno = saved;
}
