#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `run` on a terminal, from a shell with job control: ^C, ^Z and fg, input, exit statuses, and a
# terminal that goes away.
. "$(dirname "$0")/../lib/mount.sh"
command -v python3 >/dev/null || skip "no python3"
dataset "$WORK/src" 50 3000 2 1
o=seed=3,sampler=torch-distributed,ram=16M
drive() { # NAME: the steps come on stdin
	cat >"$WORK/steps"
	within 100 python3 "$TOP/tests/e2e/pty_driver.py" "$WORK/steps" >"$WORK/drive.log" 2>&1 || fail "$1"
	left() { [ -n "$(pgrep -f "clairfs run -o $o")" ]; }
	none_left() { ! left; }
	wait_for 20 none_left || fail "$1: a process is left behind: $(pgrep -af "clairfs run -o $o")"
}
run="$CLAIRFS run -o $o --quiet $WORK/src --"
# What a command line shows is made of two words, so that the shell's echo of the line is not it.
drive "the command's output, status and terminal" <<S
send $run sh -c 'test -t 0 && test -t 1 && echo ter""minal; exit 5'; echo "sta""tus \$?"\\n
want terminal
want status 5
send $run cat; echo "sta""tus \$?"\\n
send spoken\\n
want spoken
want spoken
send \\x04
want status 0
send exit\\n
S
cat >"$WORK/wait.sh" <<'C'
echo $$ >"$1.pid"
trap 'echo inter""rupted; cat "$2"/class000/img000000.png | cmp - "$3" && echo sa""me; exit 9' INT
touch "$1.begun"
while :; do sleep 0.05; done
C
cp "$WORK/src/class000/img000000.png" "$WORK/copy"
drive "^C" <<S
send $run bash $WORK/wait.sh $WORK/c $WORK/src $WORK/copy; echo "sta""tus \$?"\\n
file $WORK/c.begun
send \\x03
want interrupted
want same
want status 9
send $run sh -c 'touch $WORK/d; exec sleep 100'; echo "sta""tus \$?"\\n
file $WORK/d
send \\x03
want ^C
send echo "sta""tus \$?"\\n
want status 130
send exit\\n
S
drive "^Z and fg" <<S
send $run bash $WORK/wait.sh $WORK/z $WORK/src $WORK/copy\\n
file $WORK/z.begun
front $WORK/z.pid
want $WORK/copy
send \\x1a
stopped $WORK/z.pid
want Stopped
send echo "the shell's tur""n"\\n
want the shell's turn
send fg\\n
want wait.sh
front $WORK/z.pid
running $WORK/z.pid
send \\x1a
stopped $WORK/z.pid
want Stopped
send bg\\n
want wait.sh
running $WORK/z.pid
send fg\\n
want wait.sh
front $WORK/z.pid
send \\x03
want interrupted
want same
send echo "sta""tus \$?"\\n
want status 9
send exit\\n
S
drive "the terminal goes away" <<S
send $run sh -c 'echo \$\$ >$WORK/h.pid; exec sleep 1000'\\n
file $WORK/h.pid
running $WORK/h.pid
hangup
S
wait_for 10 gone "$(cat "$WORK/h.pid")" || fail "the command outlived its terminal"
grep -q " $WORK/src fuse" /proc/self/mounts && fail "a mount is left behind"
exit 0
