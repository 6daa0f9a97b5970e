/* SPDX-License-Identifier: BSD-3-Clause */
/* Where control sockets are, whose, and what is not taken for one. */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control.h"
#include "control_path.h"
#include "unmount.h"

static char top[64];

static void make_runtime(void)
{
	strcpy(top, "/tmp/clairtest.XXXXXX");
	cr_assert_not_null(mkdtemp(top));
	setenv("XDG_RUNTIME_DIR", top, 1);
}

static void remove_runtime(void)
{
	char folder[96];

	snprintf(folder, sizeof folder, "%s/clairfs", top);
	rmdir(folder);
	rmdir(top);
}

TestSuite(control, .init = make_runtime, .fini = remove_runtime);

Test(control, path_in_the_runtime_folder)
{
	char path[256], expected[256];
	struct stat st;

	cr_assert_eq(clair_control_path(123, path, sizeof path), 0);
	snprintf(expected, sizeof expected, "%s/clairfs/123.sock", top);
	cr_assert_str_eq(path, expected);
	snprintf(expected, sizeof expected, "%s/clairfs", top);
	cr_assert_eq(stat(expected, &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0700);
	cr_assert_eq(clair_control_path(123, path, 10), -ENAMETOOLONG);
}

Test(control, folder_that_others_may_enter_is_passed_over)
{
	char folder[96], path[256];

	snprintf(folder, sizeof folder, "%s/clairfs", top);
	cr_assert_eq(mkdir(folder, 0700), 0);
	cr_assert_eq(chmod(folder, 0755), 0);
	if (clair_control_path(123, path, sizeof path) == 0)
		cr_assert_neq(strncmp(path, top, strlen(top)), 0, "%s", path);
}

Test(control, stale_socket_is_removed)
{
	char path[256], other[256];
	size_t count = 0;
	int *pids = NULL;
	pid_t ended = fork();

	if (ended == 0)
		_exit(0);
	cr_assert_eq(waitpid(ended, NULL, 0), ended);
	cr_assert_eq(clair_control_path(ended, path, sizeof path), 0);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(clair_control_path(getpid(), other, sizeof other), 0);
	close(open(other, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(clair_control_list(&pids, &count), 0);
	bool own = false;
	for (size_t i = 0; i < count; i++) {
		cr_assert_neq(pids[i], ended);
		own |= pids[i] == getpid();
	}
	cr_assert(own);
	cr_assert_eq(access(path, F_OK), -1);
	cr_assert_eq(access(other, F_OK), 0);
	unlink(other);
	free(pids);
}

Test(control, nobody_to_ask)
{
	json_t *report = NULL;

	cr_assert_eq(clair_control_report(getpid(), 1000, &report), -ECONNREFUSED);
	cr_assert_null(report);
}

Test(control, what_is_no_mount)
{
	cr_assert_eq(clair_unmount_dead(top), 0);
	cr_assert_eq(clair_unmount_dead("/nosuch/folder"), 0);
	cr_assert_eq(clair_unmount_find(top), 0);
	if (geteuid() == 0)
		cr_assert_eq(clair_unmount(top, false), -EINVAL);
}
