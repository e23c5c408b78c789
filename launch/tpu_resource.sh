# Sourced by launch/tpu.sh, whose variables it reads: the TPU as a queued resource, which waits in Cloud's queue until there
# is one, is taken away when a spot TPU is preempted, and can then only be deleted.
seen="" # its last known state
removing="" # 1 once its deletion was asked for

need() { # NAMES...: of variables
  local name
  for name in "$@"; do
    if [ -z "${!name:-}" ]; then
      echo "$name isn't set: $name=... launch/tpu.sh ...; the first lines of launch/tpu.sh say what it is" >&2
      exit 2
    fi
  done
}

spot() { [ "${SPOT:-0}" = 1 ]; }

tpus() { # GROUP COMMAND ARGS...
  gcloud compute tpus "$1" "$2" --zone="$ZONE" ${PROJECT:+"--project=$PROJECT"} --quiet "${@:3}" </dev/null
}

# The queued resource's state: ACTIVE, WAITING_FOR_RESOURCES, ... (cloud.google.com/tpu/docs/queued-resources), ABSENT, or
# UNKNOWN where gcloud can't tell.
state() {
  local answer
  if answer="$(tpus queued-resources describe "$TPU_NAME" --format="value(state.state)" 2>&1)"; then
    grep -xE "[A-Z_]+" <<<"$answer" || echo UNKNOWN # there may be warnings
  elif [[ "$answer" == *NOT_FOUND* ]]; then
    echo ABSENT
  else
    echo "$answer" >&2
    echo UNKNOWN
  fi
}

create() {
  local more
  need ACCELERATOR_TYPE RUNTIME_VERSION
  read -ra more <<<"${CREATE_FLAGS:-}"
  if spot; then
    more+=(--spot)
  fi
  tpus queued-resources create "$TPU_NAME" --node-id="$TPU_NAME" --accelerator-type="$ACCELERATOR_TYPE" \
    --runtime-version="$RUNTIME_VERSION" "${more[@]}"
}

remove() { tpus queued-resources delete "$TPU_NAME" --force; }

give_up() {
  echo "$TPU_NAME $1" >&2
  exit 1
}

# Returns as soon as the TPU is there.
acquire() {
  local now
  while :; do
    now="$(state)"
    [ "$now" = "$seen" ] || echo "$TPU_NAME is $now" >&2
    case "$now" in
      ACTIVE) return ;;
      ABSENT)
        # A refused first creation isn't tried again: it would be refused again. After a preemption the quota may not
        # be free yet.
        if ! create && { [ "$STARTED_AGAIN" = 0 ] || ! again 255; }; then
          give_up "can't be created; above is what gcloud says"
        fi
        ;;
      FAILED | SUSPENDED)
        if ! spot || ! again 255; then
          give_up "is $now and won't come by itself: launch/tpu.sh delete, then start again"
        fi
        removing=1
        remove || echo "$TPU_NAME can't be deleted; above is what gcloud says" >&2 # the next look tells what to do
        ;;
      DELETING)
        [ "$removing" = 1 ] || give_up "is being deleted; start again once it is gone"
        sleep "${POLL_SECONDS:-30}"
        ;;
      UNKNOWN)
        if [ -z "$seen" ] || ! again 255; then
          give_up "can't be looked up; above is what gcloud says"
        fi
        ;;
      *) sleep "${POLL_SECONDS:-30}" ;;
    esac
    seen="$now"
  done
}
