#!/usr/bin/env bash
# Sets up .venv and runs the tests, the quick tier with the extra `test`, the others with `full`. Arguments are passed on
# to pytest:
#   launch/test.sh                   the quick tier, in one process: every test but those that are marked long and those
#                                    that need a package of `full`
#   launch/test.sh -n 2              the same in two; a file's tests stay in one of them, with what they share
#   launch/test.sh tests/instances   one folder; all tests of a file that is named
#   launch/test.sh -n 2 --tier full  every test, as in CI
#   launch/test.sh -n 2 --tier slow  for a night: also a hundred kills, every mesh, every training, 50 times the damages
set -euo pipefail
cd "$(dirname "$0")/.."
. launch/setup.sh
usage launch/test.sh "$@"

case " $* " in
  *" --tier full "* | *" --tier slow "* | *" --tier=full "* | *" --tier=slow "*) install full ;;
  *) install test ;;
esac
# A process of tests that dies ends the run: pytest-xdist 3.8 may wait for ever where one is replaced (its issue 1378).
exec "$VENV/bin/python" -m pytest --dist loadfile --no-loadscope-reorder --max-worker-restart 0 "$@"
