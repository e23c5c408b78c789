#!/usr/bin/env bash
# Sets up .venv with the test extra and runs the tests. Arguments are passed on to pytest: launch/test.sh tests/data
set -euo pipefail
cd "$(dirname "$0")/.."
. launch/setup.sh

install test
exec "$VENV/bin/python" -m pytest "$@"
