#!/usr/bin/env bash
# Set up if need be, then run the test suite, several tests at once. Arguments go to pytest (-n 0: one after another);
# paths are relative to the repository.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_env.sh"
bash "$root/tools/setup.sh"
cd "$root"
# A process a core; more threads than that would wait for each other.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$python" -m pytest -n auto --maxprocesses 4 --dist worksteal "$@"
