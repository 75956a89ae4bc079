#!/usr/bin/env bash
# Test on a Slurm cluster: [GPUS=8 GPUS_PER_NODE=8 CPUS_PER_TASK=5 SRUN_ARGS=…] slurm_test.sh PARTITION JOB CONFIG CHECKPOINT [OPTIONS of test.py]
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_launch.sh"
[ $# -ge 4 ] || usage
with_slurm "$1" "$2" test.py "$3" "$4" --launcher slurm "${@:5}"
