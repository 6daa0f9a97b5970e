/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of verbs, in the order of the help: VERB(identifier, "what it does") for
 * `int cmd_identifier(int argc, char **argv)` in cmd_identifier.c, where argv[0] is the
 * verb. Included by main.c only. */
VERB(order, "print the order in which samples are read")
