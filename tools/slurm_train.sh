#!/usr/bin/env bash
# Train or search on a Slurm cluster: [GPUS=8 GPUS_PER_NODE=8 CPUS_PER_TASK=5 SRUN_ARGS=…] slurm_train.sh PARTITION JOB CONFIG WORK_DIR [OPTIONS of train.py]
set -euo pipefail
users=${PYTHONPATH:-} # _env.sh unsets it
. "$(dirname -- "${BASH_SOURCE[0]}")/_env.sh"
[ -x "$python" ] || python=$(command -v python3)
[ $# -ge 4 ] || {
    sed -n 2p "${BASH_SOURCE[0]}" >&2
    exit 2
}
gpus=${GPUS:-8} per_node=${GPUS_PER_NODE:-8}
[ "$per_node" -le "$gpus" ] || per_node=$gpus
export PYTHONPATH=$root${users:+:$users}
# SRUN_ARGS holds several words.
# shellcheck disable=SC2086
exec srun -p "$1" --job-name="$2" --gres="gpu:$per_node" --ntasks="$gpus" --ntasks-per-node="$per_node" \
    --cpus-per-task="${CPUS_PER_TASK:-5}" --kill-on-bad-exit=1 ${SRUN_ARGS:-} \
    "$python" -u "$root/tools/train.py" "$3" --work-dir "$4" --launcher slurm "${@:5}"
