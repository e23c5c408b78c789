#!/usr/bin/env bash
# Raw text to a pretrained BERT on this machine: sets up .venv and runs configs/demo.py (see there for time and result).
# bert-jax is then in .venv: source .venv/bin/activate puts it on PATH, which the run's last lines say too.
# Run it again to go on after an interruption. Arguments are passed on: launch/local.sh --phases.0.steps 1000
set -euo pipefail
cd "$(dirname "$0")/.."
. launch/setup.sh
usage launch/local.sh "$@"

install report,tasks
exec "$VENV/bin/bert-jax" pretrain configs/demo.py --workdir runs/demo "$@"
