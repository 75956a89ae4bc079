"""Run a Python script that must not outlive the study: ``python child.py PARENT SCRIPT [ARGUMENT ...]``.

A killed study then leaves no process that still writes into its folders. This works on Linux only. Elsewhere the script
runs on, and its lock keeps a second start of the study away until it ends.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel to kill this process with its parent, then become the script."""
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # the parent died before the call
        sys.exit(1)
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])


if __name__ == '__main__':
    main()
