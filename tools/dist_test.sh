#!/usr/bin/env bash
# Test on several GPUs (or CPU processes) of one or more machines: dist_test.sh CONFIG CHECKPOINT NUM [OPTIONS of test.py]
# Several machines: NNODES, NODE_RANK, MASTER_ADDR and PORT, as in every OpenMMLab project.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_launch.sh"
[ $# -ge 3 ] || usage
with_torchrun "$3" test.py "$1" "$2" --launcher pytorch "${@:4}"
