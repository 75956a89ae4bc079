#!/usr/bin/env bash
# Set up if need be, then run the test suite. Arguments go to pytest; paths are relative to the repository.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_env.sh"
bash "$root/tools/setup.sh"
cd "$root"
exec "$python" -m pytest "$@"
