"""Ties a process to its parent, then becomes the command it was given.

Run as a script by ``carillon up`` for each of its children: ``python -I -S tether.py PARENT COMMAND…``. The
kernel then kills the child when the parent ends, SIGKILL included. A script of its own rather than code
between fork and exec, which is unsafe in a process with threads. On other systems than Linux only a parent
that ends in an orderly way takes its children along.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        raise SystemExit(1)
    for ignored in (signal.SIGINT, signal.SIGHUP):  # as a shell's background job would have it
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
