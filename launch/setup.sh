# Sourced by the launchers: makes .venv and installs the project into it, once for each state of its requirements.
#   PYTHON   the interpreter to use (default: the first of python3 and python3.14 down to python3.11 that is new enough)
#   VENV     where the environment goes (default: .venv)
#   VERSIONS which packages: tested (the default), those of launch/constraints.txt; oldest, the oldest that setup.cfg
#            allows; newest, the newest that it allows
#   ENVIRONMENTS   a folder that keeps environments by their requirements, for checkouts that begin without .venv, as in
#                  CI (default: none is kept). It is best on the disk of the checkouts, which then share its files.

# usage SCRIPT ARGS...: if one of ARGS asks for help, prints the comment at the top of SCRIPT and exits.
usage() {
  local word
  for word in "${@:2}"; do
    case "$word" in
      -h | --help)
        sed -n -e '/^[^#]/q' -e 's/^# //p' "$1"
        exit 0
        ;;
    esac
  done
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
  local candidate candidates=(python3 python3.14 python3.13 python3.12 python3.11)
  [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    if new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  echo "bert_jax needs Python 3.11 or newer; install one, or name it: PYTHON=/path/to/python3.12 $0" >&2
  return 2
}

# install [EXTRA]: installs the project in .venv, editable, with everything it needs.
install() {
  local extra="${1:-}" versions="${VERSIONS:-tested}" clear constraints python requirements state more kept="" of_versions=""
  local holding=("$extra") # the extras that include all packages of this one
  VENV="${VENV:-.venv}"
  requirements="$(cat setup.cfg launch/constraints.txt | cksum)"
  case "$versions" in
    tested) ;;
    oldest | newest) of_versions=" $versions $(date +%F)" ;;
    *)
      echo "VERSIONS=$versions is none of tested, oldest and newest" >&2
      return 2
      ;;
  esac
  case "$extra" in
    test) holding=(test full dev) ;;
    full) holding=(full dev) ;;
  esac
  for more in "${holding[@]}"; do
    if [ -x "$VENV/bin/python" ] && grep -qxF "$requirements $more$of_versions" "$VENV/installed" 2>/dev/null; then
      return
    fi
  done
  state="$requirements $extra$of_versions"
  python="$(find_python)"
  if [ -n "${ENVIRONMENTS:-}" ] && ! [ -e "$VENV" ]; then
    kept="$ENVIRONMENTS/$(echo "$state $("$python" -c 'import sys; print(sys.version, sys.base_prefix)')" | cksum | tr ' ' -)"
    take_kept
  fi
  if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then # missing, or its making was cut off
    echo "Making $VENV with $("$python" --version)"
    clear=""
    if compgen -G "$VENV/lib/python*/site-packages/*.dist-info" | grep -qv "/pip-"; then
      echo "$VENV has packages and no pip that works: install pip there, delete $VENV, or set VENV to another folder" >&2
      return 2
    fi
    [ ! -f "$VENV/pyvenv.cfg" ] || clear=--clear # only an environment that holds nothing is deleted
    "$python" -m venv $clear "$VENV" || {
      echo "$python can't make a virtual environment; on Debian and Ubuntu install the package python3-venv" >&2
      return 2
    }
  fi
  # Other requirements or versions replace packages, so what they were installed for isn't there any more.
  if [ -f "$VENV/installed" ]; then
    grep -xE "$requirements [a-z]*$of_versions" "$VENV/installed" >"$VENV/installed.tmp" || true
    mv "$VENV/installed.tmp" "$VENV/installed"
  fi
  echo "Installing bert_jax${extra:+ with the extra(s) $extra} and the packages that it needs into $VENV; this takes minutes"
  constraints=launch/constraints.txt
  case "$versions" in
    oldest) constraints="$(oldest "$extra")" ;;
    newest) constraints=/dev/null ;;
  esac
  "$VENV/bin/python" -m pip install --disable-pip-version-check \
    --constraint "$constraints" --editable ".${extra:+[$extra]}" | progress
  if [ -n "$kept" ]; then
    keep || echo "The environment can't be kept in $ENVIRONMENTS; the next checkout installs its own"
  fi
  echo "$state" >>"$VENV/installed"
}

# oldest [EXTRA]: writes a file with the oldest versions that setup.cfg allows, and what they need; prints its path.
oldest() {
  "$VENV/bin/python" -m pip install --disable-pip-version-check uv >/dev/null
  "$VENV/bin/python" -m uv pip compile --quiet --python "$VENV/bin/python" --resolution lowest-direct \
    ${1:+--extra "$1"} --no-header --output-file "$VENV/oldest.txt" pyproject.toml >/dev/null
  echo "$VENV/oldest.txt"
}

# progress: prints, of pip's output, which packages are downloaded and how many are installed.
progress() {
  local line packages
  while IFS= read -r line; do
    case "$line" in
      *.metadata*) ;;
      *Downloading* | *"Using cached"*) echo "$line" ;;
      "Installing collected packages: "*)
        read -ra packages <<<"${line#*: }"
        echo "Installing ${#packages[@]} packages"
        ;;
    esac
  done
}

# take_kept: copies the kept environment $kept, if there is one, to $VENV. Both share their files (hard links), which is
# safe because pip replaces files and never writes into them.
take_kept() {
  if [ -d "$kept" ]; then
    echo "Taking $VENV from $kept"
    touch "$kept" # used lately
    copy "$kept" "$VENV"
  fi
}

# keep: copies $VENV to $kept, completely or not at all, and deletes all kept environments but the six used last.
keep() {
  local new="$kept.$$" old
  if ! [ -d "$kept" ]; then
    mkdir -p "$ENVIRONMENTS"
    copy "$VENV" "$new"
    mv -T "$new" "$kept" 2>/dev/null || rm -rf "$new" # another process was faster
  fi
  find "$ENVIRONMENTS" -mindepth 1 -maxdepth 1 -printf '%T@ %p\n' | sort -rn | tail -n +7 | while read -r _ old; do
    rm -rf "$old"
  done
}

copy() {
  mkdir -p "$(dirname "$2")"
  cp -al "$1" "$2" 2>/dev/null || { rm -rf "$2" && cp -a "$1" "$2"; }
}
