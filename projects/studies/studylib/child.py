"""Run a Python script that must not outlive the study: ``python child.py PARENT SCRIPT [ARGUMENT ...]``.

A study that is killed leaves no process behind that would still write into its folders. Linux only; elsewhere
the script runs on, and the lock that it holds keeps a second start of the study away until it ends.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for the signal, then become the script."""
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it died before the kernel was asked
        sys.exit(1)
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])


if __name__ == '__main__':
    main()
