#!/usr/bin/env bash
# Sets up .venv with the extra dev and checks format, lint and types, as CI does after the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
. launch/setup.sh
usage launch/check.sh "$@"

install dev
"$VENV/bin/python" -m ruff format --check bert_jax tests configs launch
"$VENV/bin/python" -m ruff check bert_jax tests configs launch
exec "$VENV/bin/python" -m mypy
