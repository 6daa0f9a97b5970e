/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CACHE_FOLDER_H
#define CLAIR_CACHE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* Where small things are kept from one run to the next: $XDG_CACHE_HOME/clairfs, else
 * ~/.cache/clairfs. PATH becomes the file NAME there. MAKE: the folders are made. 0, -ENOENT: there
 * is no such place, -ENAMETOOLONG, or mkdir's errno. */
int clair_cache_file(const char *name, bool make, char *path, size_t size);

#endif
