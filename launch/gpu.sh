#!/usr/bin/env bash
# Pretrains on all NVIDIA GPUs of this machine, or of the nodes of a Slurm job, one process a node:
#   launch/gpu.sh CONFIG --workdir RUN [ARGS...]
#   sbatch --nodes 2 --gpus-per-node 8 launch/gpu.sh CONFIG --workdir RUN [ARGS...]
# or the first within salloc or srun. Under Slurm, all nodes must see RUN and the project's directory, from which the job
# is submitted. Sets up .venv with the extra cuda. A run that is cut off (exit code 75, 124, 134, 137, 143 or 255) is started
# again; a batch job is queued again. Any other exit code is passed on.
# Variables: RESTARTS and RETRY_SECONDS of launch/again.sh, PYTHON and VENV of launch/setup.sh, XLA_FLAGS.
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120
set -euo pipefail
project="$(dirname "$0")/.."
if ! [ -f "$project/launch/setup.sh" ]; then # sbatch runs a copy of this file from elsewhere
  project="${SLURM_SUBMIT_DIR:-.}"
fi
cd "$project"
if ! [ -f launch/setup.sh ]; then
  echo "$PWD isn't the project's directory; submit from there: cd bert_jax && sbatch launch/gpu.sh ..." >&2
  exit 2
fi
. launch/setup.sh
usage launch/gpu.sh "$@"
. launch/again.sh

# The number of GPUs that this process may use.
count_gpus() {
  local count
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    count="$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l)"
  else
    count="$(nvidia-smi --list-gpus 2>/dev/null | wc -l)" || count=0
  fi
  if [ "$count" = 0 ]; then
    echo "There is no NVIDIA GPU on $(hostname) (nvidia-smi --list-gpus); launch/local.sh trains on the CPU" >&2
    return 2
  fi
  echo "$count"
}

# This node's process of a Slurm step. By default JAX would use only the first GPU, as it expects a process for each GPU.
on_this_node() {
  local count code=0
  count="$(count_gpus)"
  JAX_LOCAL_DEVICE_IDS="$(seq --separator=, 0 $((count - 1)))"
  export JAX_LOCAL_DEVICE_IDS
  attend "$VENV/bin/bert-jax" pretrain "$@" || code=$?
  case "$code" in
    1 | 2) echo "$code" >"$(failed)" ;;
  esac
  return "$code"
}

# The file in which a process of this job leaves the exit code of its failure. srun ends with the highest code of all
# processes, which is 134: that of the others, which have lost the failed one.
failed() { echo "$VENV/failed-${SLURM_JOB_ID:-}"; }

# All nodes of a Slurm job. When the first process has ended the others may still be writing the checkpoint, so they
# aren't killed at once, whatever the cluster's KillOnBadExit.
on_all_nodes() {
  local how code=0 nodes="$SLURM_JOB_NUM_NODES"
  rm -f "$(failed)"
  attend srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=300 \
    bash launch/gpu.sh "$@" || code=$?
  if [ "$code" = 134 ] && [ -s "$(failed)" ]; then
    code="$(cat "$(failed)")"
  fi
  rm -f "$(failed)"
  STARTED_AGAIN="${SLURM_RESTART_COUNT:-0}"
  # A job that someone cancelled ends with 143 too, and would come back.
  if how="$(cut_off "$code")" && scontrol show job "$SLURM_JOB_ID" | grep -q "JobState=RUNNING" &&
    another "$how" "$code"; then
    echo "$how (exit code $code); queueing job $SLURM_JOB_ID again" >&2
    scontrol requeue "$SLURM_JOB_ID" || true # fails for a job of salloc; its message and the exit code tell
  fi
  return "$code"
}

on_this_machine() {
  local code
  count_gpus >/dev/null
  while :; do
    code=0
    attend "$VENV/bin/bert-jax" pretrain "$@" || code=$?
    again "$code" || return "$code"
  done
}

if [ $# = 0 ]; then
  echo "usage: launch/gpu.sh CONFIG --workdir RUN [ARGS...], for example launch/gpu.sh configs/base.py --workdir runs/base" >&2
  exit 2
fi
exec 9>>launch/setup.sh # the processes of a step start at the same time: one of them sets up
flock 9
install cuda
exec 9>&-
if [ -n "${SLURM_STEP_NODELIST:-}" ]; then
  on_this_node "$@"
elif [ -n "${SLURM_JOB_ID:-}" ]; then
  on_all_nodes "$@"
else
  on_this_machine "$@"
fi
