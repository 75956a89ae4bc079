#!/usr/bin/env bash
# Train or search on a Slurm cluster: [GPUS=8 GPUS_PER_NODE=8 CPUS_PER_TASK=5 SRUN_ARGS=…] slurm_train.sh PARTITION JOB CONFIG WORK_DIR [OPTIONS of train.py]
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_launch.sh"
[ $# -ge 4 ] || usage
with_slurm "$1" "$2" train.py "$3" --work-dir "$4" --launcher slurm "${@:5}"
