#!/usr/bin/env bash
# Commands that launch/tpu.sh gives on each worker of a TPU; the run outlives the connection. runs/worker has the run's
# `log`, `pid` and exit `code`, `stopped` if it was asked to stop, and `lock`, held as long as any of its processes lives.
#   setup           a Python that is new enough, and .venv with the extras tpu and gcs
#   state           prints `running` or `idle`
#   start ARGS...   starts bert-jax pretrain ARGS, unless it is running
#   follow          prints the log until the run has ended
#   end [SECONDS]   waits SECONDS for the end (default: 300), then kills the run; prints its exit code, or `stopped`
#   stop            asks for a checkpoint and the end
set -euo pipefail
cd "$(dirname "$0")/.."
. launch/setup.sh
usage launch/tpu_worker.sh "${1:-}"
. launch/flags.sh
. launch/again.sh
state_dir=runs/worker

# The image of Cloud TPU has Python 3.10, and its Ubuntu packages 3.11 as a release candidate only, for root. uv brings a
# Python of its own into the home directory, and pip gets uv from where all other packages come from.
setup() {
  local found
  mkdir -p "$state_dir"
  exec 8>>launch/setup.sh # an earlier call whose connection was lost may still be setting up
  flock 8
  if ! { found="$(find_python 2>/dev/null)" && "$found" -c "import ensurepip" 2>/dev/null; }; then
    python3 -m pip install --quiet --disable-pip-version-check --target .uv uv
    .uv/bin/uv python install --quiet 3.12
    PYTHON="$(.uv/bin/uv python find --managed-python 3.12)"
  fi
  install tpu,gcs
  exec 8>&-
}

running() { [ -d "$state_dir" ] && ! flock --nonblock "$state_dir/lock" true; }

state() { if running; then echo running; else echo idle; fi; }

start() {
  exec 9>"$state_dir/lock" # left open: the processes of the run inherit the lock
  if ! flock --nonblock 9; then
    return
  fi
  rm -f "$state_dir/code" "$state_dir/stopped"
  setsid nohup bash launch/tpu_worker.sh record "$@" >"$state_dir/log" 2>&1 </dev/null &
  echo $! >"$state_dir/pid"
}

# The run itself, in the background. A machine that dies leaves no code. If JAX chose the platform, a run on a machine
# whose TPU can't be used would train on its CPU.
record() {
  local code=0
  tpu_flags
  export JAX_PLATFORMS="${JAX_PLATFORMS:-tpu,cpu}"
  attend "${VENV:-.venv}/bin/bert-jax" pretrain "$@" || code=$?
  echo "$code" >"$state_dir/code"
}

follow() {
  if running; then
    tail --lines=100 --sleep-interval=0.2 --follow --pid="$(cat "$state_dir/pid")" "$state_dir/log"
  else
    tail --lines=100 "$state_dir/log"
  fi
}

end() {
  if ! flock --timeout "${1:-300}" "$state_dir/lock" true; then
    kill -KILL -- "-$(cat "$state_dir/pid")" 2>/dev/null || true
    flock "$state_dir/lock" true
  fi
  if [ -e "$state_dir/stopped" ]; then
    echo stopped
  else
    cat "$state_dir/code" 2>/dev/null || echo 137
  fi
}

stop() {
  if running; then
    touch "$state_dir/stopped"
    kill -TERM "$(cat "$state_dir/pid")"
  fi
}

"$@"
