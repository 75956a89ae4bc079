#!/usr/bin/env bash
# Train or search on several GPUs (or CPU processes) of one or more machines: dist_train.sh CONFIG NUM [OPTIONS of train.py]
# Several machines: NNODES, NODE_RANK, MASTER_ADDR and PORT, as in every OpenMMLab project.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_launch.sh"
[ $# -ge 2 ] || usage
with_torchrun "$2" train.py "$1" --launcher pytorch "${@:3}"
