# Sourced by the launchers that start a run again.
#   RESTARTS        how often at most (default: 100)
#   RETRY_SECONDS   the pause before each (default: 10)
STOPPED=0 # 1 once someone has stopped the run
STARTED_AGAIN=0

# attend COMMAND...: runs it and returns its exit code. SIGTERM and Ctrl-C reach it as SIGTERM, upon which a run writes a
# checkpoint and ends with 143.
attend() {
  local child="" early="" code
  trap 'STOPPED=1; if [ -z "$child" ]; then early=1; else kill -TERM "$child" 2>/dev/null || true; fi' TERM INT
  "$@" &
  child=$!
  if [ -n "$early" ]; then # a signal came before the child had a number; the trap passes on later ones
    kill -TERM "$child" 2>/dev/null || true
  fi
  while :; do # a signal ends `wait` before the command has ended
    wait "$child" || true
    kill -0 "$child" 2>/dev/null || break
  done
  code=0
  wait "$child" || code=$?
  trap - TERM INT
  return "$code"
}

# cut_off CODE: prints how a run was cut off, if starting it again helps. Fails for other codes: after 1 or 2 the run
# would fail again.
cut_off() {
  case "$1" in
    143) echo "stopped after a checkpoint" ;;
    137) echo "killed" ;;
    134) echo "another host lost" ;;
    124) echo "stuck" ;;
    75) echo "bucket out of reach" ;;
    255) echo "machine out of reach" ;;
    *) return 1 ;;
  esac
}

# another HOW CODE: counts a restart; fails after RESTARTS of them. HOW and CODE are for the message.
another() {
  STARTED_AGAIN=$((STARTED_AGAIN + 1))
  if [ "$STARTED_AGAIN" -gt "${RESTARTS:-100}" ]; then
    echo "$1 once more (exit code $2) after ${RESTARTS:-100} restarts: giving up; RESTARTS allows more" >&2
    return 1
  fi
}

# again CODE: succeeds, after a pause, if a run that ended with CODE should be started again.
again() {
  local how
  if [ "$STOPPED" = 1 ] || ! how="$(cut_off "$1")"; then
    return 1
  fi
  another "$how" "$1" || return 1
  echo "$how (exit code $1); starting again in ${RETRY_SECONDS:-10} s" >&2
  sleep "${RETRY_SECONDS:-10}"
}
