#!/usr/bin/env bash
# Trains a small model while faults are thrown at it at random, then the same model without any, and compares. Prints
# how many faults of each kind the run survived, and whether its measurements and states are the undisturbed run's to
# the last bit. Exits with 0 if the run survived all faults and both are equal.
#   launch/soak.sh [ARGS...]
# ARGS are settings of the run, as bert-jax pretrain takes them. A full and a slow disk need root, who may mount one.
#   SOAK_SECONDS     how long faults are thrown (default: 3600); the undisturbed run comes on top
#   PAUSE_SECONDS    the longest pause between two faults, and the longest time that a lasting fault takes (default: 10)
#   PATIENCE_SECONDS how long the run has to recover before it counts as lost (default: 300)
#   FAULTS           which kinds (default: kill terminate pause full_disk slow_disk damaged_checkpoint damaged_data)
#   SEED             seed of the choice of faults and pauses (default: 1)
#   SOAK_DIRECTORY   where everything goes, deleted first (default: runs/soak)
#   DISK_MEGABYTES   size of the disk (default: 100)
# and PYTHON and VENV of launch/setup.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. launch/setup.sh
usage launch/soak.sh "$@"
RANDOM="${SEED:-1}"
pause="${PAUSE_SECONDS:-10}"
folder="${SOAK_DIRECTORY:-runs/soak}"
disk="$folder/disk"
disturbed="$disk/run"
undisturbed="$folder/undisturbed"
log="$folder/log"
kinds="kill terminate pause full_disk slow_disk damaged_checkpoint damaged_data"
read -ra faults <<<"${FAULTS:-$kinds}"
for kind in "${faults[@]}"; do
  if [[ " $kinds " != *" $kind "* ]]; then
    echo "FAULTS names $kind, which is none of: $kinds" >&2
    exit 2
  fi
done
if [ -n "$(ls -A "$folder" 2>/dev/null)" ] && [ ! -f "$folder/is_soak" ]; then
  echo "SOAK_DIRECTORY=$folder holds something else than a soak and would be deleted; give another" >&2
  exit 2
fi
if [ "${#faults[@]}" = 0 ]; then
  echo "FAULTS names no fault; give some of: $kinds" >&2
  exit 2
fi
# Steps of some milliseconds and a checkpoint a second, so that faults hit every activity of the run, which never ends.
config=(configs/demo.py --vocabulary.size 2000 --model.hidden-size 64 --model.feedforward-size 128 --model.dropout 0.1
  --phases.0.steps 1000000 --execution.accumulation 2 --execution.max-skipped-steps 5 --logging.every 10
  --checkpoints.every 100 --evaluation.every 500 --evaluation.max-sequences 64 "$@")
child=
declare -A thrown survived

# Signals, mounts and files are left as they were found.
clean_up() {
  [ -z "$child" ] || ! kill -KILL "$child" 2>/dev/null || wait "$child" 2>/dev/null || true
  ! mountpoint -q "$disk" || { fsfreeze -u "$disk" 2>/dev/null || true; umount "$disk"; }
}
trap clean_up EXIT
trap 'exit 143' TERM INT

make_disk() {
  clean_up
  rm -rf "$folder"
  mkdir -p "$disk"
  touch "$folder/is_soak" # only a folder with this file is deleted
  if [ "$(id -u)" = 0 ] && truncate -s "${DISK_MEGABYTES:-100}M" "$folder/disk.img" &&
    mkfs.ext4 -q "$folder/disk.img" && mount -o loop "$folder/disk.img" "$disk"; then
    return
  fi
  echo "No disk can be mounted here: full_disk and slow_disk are left out" >&2
  local all=" ${faults[*]} "
  all="${all/ full_disk / }"
  read -ra faults <<<"${all/ slow_disk / }"
}

start() { # COMMAND RUN
  said_before="$(wc -l <"$log")"
  "$VENV/bin/bert-jax" "$1" "${config[@]}" --workdir "$2" >>"$log" 2>&1 &
  child=$!
}

# The exit code of the run, which has ended or is about to.
ended() {
  local code=0
  wait "$child" || code=$?
  child=
  return "$code"
}

running() { kill -0 "$child" 2>/dev/null; }
said() { tail -n +$((said_before + 1)) "$log" | grep "$1" >/dev/null; }
newest_step() { # RUN: in its log
  local step
  step="$(tail -n 1 "$1/metrics.jsonl" 2>/dev/null | sed -nE 's/.*"step": ([0-9]+),.*/\1/p')"
  echo "${step:-0}"
}
newest_checkpoint() { # RUN
  local found=("$1"/checkpoints/[0-9]*[0-9]/manifest.json)
  dirname "${found[-1]}"
}

saved_step() { # of the disturbed run
  local name
  name="$(basename "$(newest_checkpoint "$disturbed")")"
  echo "$((10#$name))"
}

# patiently COMMAND...: repeats COMMAND until it succeeds. Fails if the run ends first, or after PATIENCE_SECONDS.
patiently() {
  local until=$((SECONDS + ${PATIENCE_SECONDS:-300}))
  while ! "$@"; do
    if ! running || [ "$SECONDS" -gt "$until" ]; then
      "$@"
      return
    fi
    sleep 0.1
  done
}
# shellcheck disable=SC2329 # patiently calls them
past() { [ "$(newest_step "$1")" -gt "$2" ]; } # RUN STEP
# shellcheck disable=SC2329
saved_past() { [ "$(saved_step)" -gt "$1" ]; } # STEP
# shellcheck disable=SC2329
several_saved() { # so that one is left to go on from
  local found=("$disturbed"/checkpoints/[0-9]*[0-9]/manifest.json)
  [ "${#found[@]}" -gt 1 ]
}
goes_on() { patiently past "$disturbed" "$(newest_step "$disturbed")"; }
# shellcheck disable=SC2329
stopped() { ! running; }

# Starts the run again; success once it trains further than its newest checkpoint.
restart() {
  start pretrain "$disturbed"
  patiently said "going on from step" && patiently past "$disturbed" "$(saved_step)"
}

kill_() {
  kill -KILL "$child"
  ended 2>/dev/null || true
}
lasting() { sleep "$((RANDOM % (pause + 1)))"; }

fault_kill() { kill_ && restart; }

fault_terminate() {
  local code=0
  kill -TERM "$child"
  patiently stopped || return
  ended || code=$?
  [ "$code" = 143 ] && [ "$(saved_step)" -ge "$(newest_step "$disturbed")" ] && restart
}

fault_pause() {
  kill -STOP "$child"
  lasting
  kill -CONT "$child"
  goes_on
}

fault_full_disk() {
  local saved code=0
  saved="$(saved_step)"
  said_before="$(wc -l <"$log")"
  dd if=/dev/zero of="$disk/ballast" bs=64k 2>/dev/null || true
  patiently said "could not be written" || code=1
  lasting
  rm "$disk/ballast"
  running && [ "$code" = 0 ] && patiently saved_past "$saved"
}

fault_slow_disk() { # one that answers once a second
  local until=$((SECONDS + RANDOM % (pause + 1)))
  while :; do
    fsfreeze -f "$disk"
    sleep 0.9
    fsfreeze -u "$disk"
    sleep 0.1
    [ "$SECONDS" -lt "$until" ] || break
  done
  goes_on
}

overwrite() { # FILE: the middle half of it
  local size
  size="$(stat -c %s "$1")"
  dd if=/dev/urandom of="$1" bs=64k seek=$((size / 4)) count=$((size / 2)) conv=notrunc \
    iflag=count_bytes oflag=seek_bytes 2>/dev/null
}

fault_damaged_checkpoint() {
  local file
  patiently several_saved || return
  kill_
  file="$(find "$(newest_checkpoint "$disturbed")" -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-)"
  overwrite "$file"
  restart && said "is set aside" && rm -r "$disturbed"/checkpoints/damaged-*
}

fault_damaged_data() { # the run names the damage and ends; with the files put back, it goes on
  local file code=0
  said_before="$(wc -l <"$log")"
  for file in "$disturbed"/data/*/train-*; do
    overwrite "$file"
  done
  patiently stopped || return
  ended || code=$?
  for file in "$disturbed"/data/*/train-*; do
    cp "$undisturbed${file#"$disturbed"}" "$file"
  done
  [ "$code" = 1 ] && said 'train-[0-9]*.array_record: record [0-9]* .*is damaged' && restart
}

fault() {
  case "$1" in
    kill) fault_kill ;;
    terminate) fault_terminate ;;
    pause) fault_pause ;;
    full_disk) fault_full_disk ;;
    slow_disk) fault_slow_disk ;;
    damaged_checkpoint) fault_damaged_checkpoint ;;
    damaged_data) fault_damaged_data ;;
  esac
}

throw() {
  local fault="$1" verdict=lost
  thrown[$fault]=$((${thrown[$fault]:-0} + 1))
  echo "FAULT $fault" >>"$log"
  if fault "$fault"; then
    survived[$fault]=$((${survived[$fault]:-0} + 1))
    verdict=survived
  fi
  echo "$(date +%T) step $(newest_step "$disturbed"): $fault $verdict"
  [ "$verdict" = survived ]
}

train_disturbed() {
  local code=0
  start pretrain "$disturbed"
  patiently past "$disturbed" 100 || return
  SECONDS=0
  while [ "$SECONDS" -lt "${SOAK_SECONDS:-3600}" ]; do
    throw "${faults[RANDOM % ${#faults[@]}]}" || return
    sleep "0.$((RANDOM % 10))"
    lasting
  done
  kill -TERM "$child"
  ended || code=$?
  [ "$code" = 143 ]
}

train_undisturbed() { # STEP: however long it takes
  start pretrain "$undisturbed"
  while running && ! past "$undisturbed" "$1"; do
    sleep 0.1
  done
  kill -TERM "$child"
  ended || [ $? = 143 ]
}

measurements() { # RUN STEP: what the run measured up to the step, except its speed
  awk -F '[:,]' -v last="$2" '$2 <= last' "$1/metrics.jsonl" |
    sed -E 's/"[a-z]*_per_second": [^,]*, //g; s/"mfu": [^,]*, //'
}

# Compares both runs up to a step; prints a line each for measurements and states.
compare() {
  local differing number path common=0 same=0
  differing="$(diff <(measurements "$disturbed" "$1") <(measurements "$undisturbed" "$1") | grep -c '^[<>]' || true)"
  number="$(measurements "$disturbed" "$1" | wc -l)"
  echo "measurements up to step $1: $number, of which differ: $differing"
  for path in "$undisturbed"/checkpoints/[0-9]*[0-9]/manifest.json; do
    if [ -e "$disturbed${path#"$undisturbed"}" ]; then
      common=$((common + 1))
      ! cmp -s <(grep '"bits"' "$path") <(grep '"bits"' "$disturbed${path#"$undisturbed"}") || same=$((same + 1))
    fi
  done
  echo "checkpoints of the same step: $common, with the same state: $same"
  [ "$differing" = 0 ] && [ "$number" -gt 0 ] && [ "$same" = "$common" ]
}

install
make_disk
: >"$log"
start prepare "$undisturbed"
ended || {
  echo "No data could be prepared; see $log" >&2
  exit 1
}
cp -r "$undisturbed" "$disturbed"
verdict=0
train_disturbed || verdict=1
for fault in "${faults[@]}"; do
  printf '%-20s thrown %4d   survived %4d\n' "$fault" "${thrown[$fault]:-0}" "${survived[$fault]:-0}"
done
if [ "$verdict" = 0 ]; then
  last="$(newest_step "$disturbed")"
  { train_undisturbed "$last" && compare "$last"; } || verdict=1
fi
[ "$verdict" = 0 ] || echo "The soak failed; the run's own words are in $log" >&2
exit "$verdict"
