#!/usr/bin/env bash
# Set up if necessary, then run the quickstart. Arguments go to tools/quickstart.py.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_env.sh"
bash "$root/tools/setup.sh"
cd "$root"
exec "$python" -m tools.quickstart "$@"
