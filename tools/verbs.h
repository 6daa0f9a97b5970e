/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of verbs, in the order of the help: VERB(identifier, "what it does") for
 * `int cmd_identifier(int argc, char **argv)` in cmd_identifier.c, where argv[0] is the
 * verb. Included by main.c only. */
VERB(run, "run a command with a private mount over its dataset")
VERB(mount, "mount a dataset")
VERB(umount, "unmount")
VERB(status, "tell what mounts do")
VERB(set, "set seed, epoch, … of a mount")
VERB(order, "print the order in which samples are read")
VERB(verify, "check a cache folder")
VERB(trace, "print the opens of a running mount")
VERB(discover, "find the order that a trace of opens follows")
VERB(calibrate, "measure source, memory and cache folders")
