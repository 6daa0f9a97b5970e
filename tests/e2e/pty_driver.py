# SPDX-License-Identifier: BSD-3-Clause
"""A shell with job control on a terminal of its own, driven by steps.

pty_driver.py SCRIPT: each line of SCRIPT is `send TEXT` (with \\n, \\x03 and the like), `want
TEXT` (waits until the terminal has shown it since the last `want`), `file PATH` (waits until it
is there), `stopped PATH` / `running PATH` (the state of the process whose number PATH holds), `front PATH` (it
has the terminal),
`hangup` (closes the terminal). Exit status 0 when all steps went well, 1 with a line that tells
which did not."""
import codecs
import os
import pty
import select
import signal
import sys
import time

DEADLINE = 40
shown = b""


def fail(step):
    print(f"FAIL: {step}; the terminal showed: {shown!r}")
    sys.exit(1)


def take(fd, seconds):
    """What the terminal shows within that time; never blocks longer."""
    global shown
    if fd is None:
        time.sleep(seconds)
    elif select.select([fd], [], [], seconds)[0]:
        try:
            shown += os.read(fd, 65536)
        except OSError:
            time.sleep(seconds)


def state(path, field=0):
    try:
        with open(path) as f:
            pid = int(f.read())
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[field]
    except (OSError, ValueError, IndexError):
        return "-"


def until(fd, step, done):
    end = time.monotonic() + DEADLINE
    while not done():
        if time.monotonic() > end:
            fail(step)
        take(fd, 0.05)


def perform(fd, step):
    global shown
    verb, _, text = step.partition(" ")
    if verb == "send":
        os.write(fd, codecs.decode(text, "unicode_escape").encode("latin-1"))
    elif verb == "want":
        wanted = text.encode()
        until(fd, step, lambda: wanted in shown)
        shown = shown[shown.index(wanted) + len(wanted):]
    elif verb == "file":
        until(fd, step, lambda: os.path.exists(text))
    elif verb == "stopped":
        until(fd, step, lambda: state(text) == "T")
    elif verb == "running":
        until(fd, step, lambda: state(text) in "RSD")
    elif verb == "front":
        until(fd, step, lambda: state(text, 2) == str(os.tcgetpgrp(fd)))
    elif verb == "hangup":
        os.close(fd)
        return None
    else:
        fail(step)
    return fd


def main():
    pid, fd = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.environ.update(PS1="% ", TERM="dumb", HISTFILE="")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
    with open(sys.argv[1]) as f:
        for step in f.read().splitlines():
            if step:
                fd = perform(fd, step)
    if fd is not None:
        os.close(fd)


main()
