# Start a tool in several processes. dist_*.sh and slurm_*.sh source this file.
# Sets `root` and `python`, puts the repository before the user's PYTHONPATH, and defines the functions below.

users=${PYTHONPATH:-} # _env.sh unsets it
. "$(dirname -- "${BASH_SOURCE[0]}")/_env.sh"
[ -x "$python" ] || python=$(command -v python3)
export PYTHONPATH=$root${users:+:$users}

# Print the second line of the script that is run, its usage, and end.
usage() {
    sed -n 2p "$0" >&2
    exit 2
}

# with_torchrun NUM SCRIPT [ARGUMENTS]
with_torchrun() {
    local num=$1 script=$2
    exec "$python" -m torch.distributed.run --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" \
        --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}" --nproc_per_node="$num" \
        "$root/tools/$script" "${@:3}"
}

# with_slurm PARTITION JOB SCRIPT [ARGUMENTS]
with_slurm() {
    local partition=$1 job=$2 script=$3 gpus=${GPUS:-8} per_node=${GPUS_PER_NODE:-8}
    [ "$per_node" -le "$gpus" ] || per_node=$gpus
    # SRUN_ARGS holds several words.
    # shellcheck disable=SC2086
    exec srun -p "$partition" --job-name="$job" --gres="gpu:$per_node" --ntasks="$gpus" --ntasks-per-node="$per_node" \
        --cpus-per-task="${CPUS_PER_TASK:-5}" --kill-on-bad-exit=1 ${SRUN_ARGS:-} \
        "$python" -u "$root/tools/$script" "${@:4}"
}
