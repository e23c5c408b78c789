#!/usr/bin/env bash
# Pretrains on a Cloud TPU, one machine or a slice of many: creates it or finds it, sets it up, starts the run on all its
# workers and prints the log of the first. The run goes on if this script ends, and the script attaches to it when it is
# given again. While the script runs, it restarts a run that is cut off or has lost its machine, if need be on a new one.
#   launch/tpu.sh CONFIG --workdir gs://BUCKET/RUN [ARGS...]
#   launch/tpu.sh stop      ends the run with a checkpoint; the TPU stays, and is paid for
#   launch/tpu.sh delete    the same, and deletes the TPU
# A --workdir on the worker's own disk serves one on-demand machine; it goes with the machine. For a slice of several
# machines give gcloud's ssh key to the agent first: ssh-add ~/.ssh/google_compute_engine
#   TPU_NAME           what the TPU is to be called; its queued resource has the same name
#   ZONE               where, for example us-west4-a
#   ACCELERATOR_TYPE   which, for example v5litepod-16 (needed to create it)
#   RUNTIME_VERSION    with what image, for example v2-alpha-tpuv5-lite (needed to create it)
#   SPOT               1 for a spot TPU: cheaper, may be taken away at any time, is then created anew (default: 0)
#   PROJECT            the Cloud project (default: gcloud's)
#   CREATE_FLAGS       more flags for its creation, for example --service-account=NAME
#   SSH_FLAGS          more flags for gcloud's ssh and scp, for example --internal-ip
#   POLL_SECONDS       how often to look whether it is there (default: 30)
# and RESTARTS and RETRY_SECONDS of launch/again.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. launch/setup.sh
usage launch/tpu.sh "$@"
. launch/again.sh
. launch/tpu_resource.sh
read -ra ssh_flags <<<"${SSH_FLAGS:-}"
scratch="$(mktemp -d)"
trap 'rm -r "$scratch"' EXIT

workers() { # WHICH COMMAND: in a shell of each of them
  tpus tpu-vm ssh "$TPU_NAME" --worker="$1" --command="$2" "${ssh_flags[@]}"
}

# WHICH ARGS...: of launch/tpu_worker.sh
worker() { workers "$1" "bash bert_jax/launch/tpu_worker.sh$(printf ' %q' "${@:2}")"; }

states() { workers all "[ ! -e bert_jax/runs/worker ] && echo idle || bash bert_jax/launch/tpu_worker.sh state"; }

# The project, set up on all workers.
prepare() {
  tar --exclude=./.git --exclude='./.venv*' --exclude=./runs --exclude=__pycache__ -czf "$scratch/bert_jax.tgz" . || return
  tpus tpu-vm scp "$scratch/bert_jax.tgz" "$TPU_NAME:" --worker=all "${ssh_flags[@]}" || return 255
  workers all "mkdir -p bert_jax && tar -xzf bert_jax.tgz -C bert_jax && bash bert_jax/launch/tpu_worker.sh setup"
}

# The run's exit code, from those of its workers: if one is cut off or fails, the others fail because of it.
verdict() {
  local code
  for code in 143 137 2 1; do
    ! grep -qx "$code" <<<"$1" || return "$code"
  done
  return "$(sort -n <<<"$1" | tail -n 1)"
}

# The run, from its start or from where it is, to its end. 255 if the connection or a machine is lost.
session() {
  local before code codes
  before="$(states)" || return 255
  if [[ "$before" == *idle* ]]; then
    if [[ "$before" == *running* ]]; then
      worker all end 0 >/dev/null # what is left of a run that has lost a worker
    fi
    code=0
    prepare || code=$?
    if [ "$code" != 0 ]; then
      echo "$TPU_NAME can't be set up (exit code $code); above is why" >&2
      [ "$STARTED_AGAIN" = 0 ] || code=255 # it could be set up before, so that a server may be out of reach
      return "$code"
    fi
    worker all start "$@" || return 255
  else
    echo "The run is under way on $TPU_NAME" >&2
  fi
  worker 0 follow || return 255
  codes="$(worker all end)" || return 255
  if grep -qx stopped <<<"$codes"; then
    STOPPED=1
    return 143
  fi
  verdict "$codes"
}

pretrain() {
  local code
  while :; do
    acquire
    code=0
    session "$@" || code=$?
    if [ "$code" != 0 ] && [ "$STOPPED" = 0 ] && [ "$(state)" != ACTIVE ]; then
      code=255 # the machine is lost, whatever codes the workers gave
    fi
    again "$code" || return "$code"
  done
}

stop() {
  if [ "$(state)" = ACTIVE ] && [[ "$(states)" == *running* ]]; then
    worker all stop
    worker all end
  else
    echo "There is no run on $TPU_NAME" >&2
  fi
}

delete() {
  stop || true # it goes anyway
  if [ "$(state)" = ABSENT ]; then
    echo "There is no $TPU_NAME" >&2
  else
    remove
  fi
}

# Refuses what the workers would refuse, before a TPU is created and paid for.
check() {
  if [[ "${1:-}" == "" || "$1" == -* || " $* " != *" --workdir"* ]]; then
    echo "usage: launch/tpu.sh CONFIG --workdir gs://BUCKET/RUN [ARGS...], launch/tpu.sh stop or launch/tpu.sh delete" >&2
    exit 2
  fi
  local table="${1#configs/}" # experiments/modern is in configs/experiments.py
  if [[ "$1" != gs://* ]] && ! [ -e "./$1" ] && ! [ -f "configs/${table%%/*}.py" ] || [[ "$1" == runs/* ]]; then
    echo "$1 isn't what the workers get: CONFIG is a file in $PWD, but not in runs/, a name of configs/, or a run at gs://..." >&2
    exit 2
  fi
}

need TPU_NAME ZONE
case "${1:-}" in
  stop) stop ;;
  delete) delete ;;
  *)
    check "$@"
    pretrain "$@"
    ;;
esac
