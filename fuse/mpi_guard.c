/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded into the command of a `clairfs run` that is one of several of an MPI job. The
 * mount's peer process has the command's place in that job: MPI_Init here would make a silent
 * job of size 1. An mpirun that the command starts itself works as always. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int MPI_Init(int *argc, char ***argv);
PUBLIC int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);

/* Whether this process was started by a launcher of the command's own. */
static int launched_anew(void)
{
	return getenv("PMIX_RANK") || getenv("PMI_FD");
}

static void refuse(void)
{
	fputs("clairfs: MPI_Init: this program's place in the MPI job is taken by the mount under "
	      "it; start the mounts as a job of their own: `mpirun -N 1 clairfs mount DATA & "
	      "clairfs status --wait; mpirun ... PROGRAM; clairfs umount DATA`\n",
	      stderr);
	_exit(1);
}

int MPI_Init(int *argc, char ***argv)
{
	int (*real)(int *, char ***);

	*(void **)&real = launched_anew() ? dlsym(RTLD_NEXT, "MPI_Init") : NULL;
	if (!real)
		refuse();
	return real(argc, argv);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	int (*real)(int *, char ***, int, int *);

	*(void **)&real = launched_anew() ? dlsym(RTLD_NEXT, "MPI_Init_thread") : NULL;
	if (!real)
		refuse();
	return real(argc, argv, required, provided);
}
