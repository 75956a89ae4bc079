#!/usr/bin/env bash
# Set up if necessary, then run the test suite with several tests at once. Arguments go to pytest (-n 0 runs tests one
# after another). Paths are relative to the repository.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_env.sh"
bash "$root/tools/setup.sh"
cd "$root"
# One process per core; more threads would wait for each other.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$python" -m pytest -n auto --maxprocesses 4 --dist worksteal "$@"
