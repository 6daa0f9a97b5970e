/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_LOG_H
#define CLAIR_LOG_H

#include <stdbool.h>

/* Log lines: lower case, the path, the errno's text (%m), and what happens next. Whoever
 * decides what becomes of an error logs it, once. Safe from any thread; not from a
 * signal handler. */

enum clair_level { CLAIR_ERROR, CLAIR_WARNING, CLAIR_INFO, CLAIR_DEBUG };

/* SPEC: `error`, `warning`, `info`, `debug`, each with an optional `:FILE` (appended
 * to). Returns 0; -EINVAL for an unknown level; a negative errno when FILE cannot be
 * opened. */
int clair_log_setup(const char *spec);
bool clair_log_wants(enum clair_level level);
void clair_log(enum clair_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define log_error(...) clair_log(CLAIR_ERROR, __VA_ARGS__)
#define log_warning(...) clair_log(CLAIR_WARNING, __VA_ARGS__)
#define log_info(...) clair_log(CLAIR_INFO, __VA_ARGS__)
#define log_debug(...)                                                                  \
	do {                                                                            \
		if (clair_log_wants(CLAIR_DEBUG))                                       \
			clair_log(CLAIR_DEBUG, __VA_ARGS__);                            \
	} while (0)

#endif
