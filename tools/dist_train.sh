#!/usr/bin/env bash
# Train or search on several GPUs (or CPU processes) of one or more machines: dist_train.sh CONFIG NUM [OPTIONS of train.py]
# Several machines: NNODES, NODE_RANK, MASTER_ADDR and PORT, as in every OpenMMLab project.
set -euo pipefail
users=${PYTHONPATH:-} # _env.sh unsets it
. "$(dirname -- "${BASH_SOURCE[0]}")/_env.sh"
[ -x "$python" ] || python=$(command -v python3)
[ $# -ge 2 ] || {
    sed -n 2p "${BASH_SOURCE[0]}" >&2
    exit 2
}
num=$2 first=("$1") rest=("${@:3}")
export PYTHONPATH=$root${users:+:$users}
exec "$python" -m torch.distributed.run --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}" --nproc_per_node="$num" \
    "$root/tools/train.py" "${first[@]}" --launcher pytorch ${rest[@]+"${rest[@]}"}
