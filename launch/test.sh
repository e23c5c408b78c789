#!/usr/bin/env bash
# Sets up .venv and runs the tests, the quick tier with the extra `test`, the others with `full`. Arguments are passed on
# to pytest:
#   launch/test.sh                   the quick tier, in one process: every test but those that are marked long and those
#                                    that need a package of `full`
#   launch/test.sh -n 2              the same in two; a file's tests stay in one of them, with what they share
#   launch/test.sh tests/instances   one folder; all tests of a file that is named
#   launch/test.sh -n 2 --tier full  every test, as in CI, a quarter of the files at a time
#   launch/test.sh -n 2 --tier slow  for a night: also a hundred kills, every mesh, every training, 50 times the damages
set -euo pipefail
cd "$(dirname "$0")/.."
. launch/setup.sh
usage launch/test.sh "$@"

files=()
case " $* " in
  *" --tier full "* | *" --tier slow "* | *" --tier=full "* | *" --tier=slow "*)
    install full
    while IFS= read -r file; do files+=("$file"); done < <(find tests -name 'test_*.py' | LC_ALL=C sort)
    ;;
  *) install test ;;
esac
for word in "$@"; do # the caller chooses files
  if [ -e "${word%%::*}" ]; then files=(); fi
done

# Every test: a quarter of the files at a time, since libraries keep about 30 MB for each minute of tests. The first
# quarter that fails is the last. A process of tests that dies ends the run: pytest-xdist 3.8 may wait for ever where one
# is replaced (its issue 1378).
quarter=$(((${#files[@]} + 3) / 4)) first=0 found=5 no_test=5 # pytest's exit code where no test is chosen, as by -k
while true; do
  ended=0
  "$VENV/bin/python" -m pytest --dist loadfile --no-loadscope-reorder --max-worker-restart 0 "$@" \
    ${files[@]+"${files[@]:first:quarter}"} || ended=$?
  [ "$ended" = "$no_test" ] || found=$ended
  first=$((first + quarter))
  case "$found" in 0 | "$no_test") ;; *) break ;; esac
  [ "$first" -lt "${#files[@]}" ] || break
done
exit "$found"
