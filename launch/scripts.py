"""The parts that scripts for measurements share: their results in a file, errors as exit codes."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bert_jax.system.errors import BertJaxError, UsageError
from bert_jax.system.files import write_json, write_text
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import complain

Results = TypeVar("Results")


def results_before(path: Path, conditions: dict[str, Any], read: Callable[[dict[str, Any]], Results]) -> Results | None:
    """The results in a JSON file, by `read` from its object; None without a file.

    Raises UsageError if the file is damaged, or if its results were measured under other `conditions`, and for a name
    with the ending .md, which their table has.
    """
    if path.suffix == ".md":
        raise UsageError(f"--output {path} is where the table is written; give a name like {path.with_suffix('.json')}")
    if not path.exists():
        return None
    try:
        before = read_object(path)
        results = read(before)
        differing = {name: before[name] for name in conditions if before[name] != conditions[name]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} can't be read as measurements ({error!r}); give another --output") from None
    if differing:
        now = {name: conditions[name] for name in differing}
        raise UsageError(f"{path} was measured with {differing} and this would be {now}; give another --output")
    return results


def write_results(path: Path, results: dict[str, Any], table: str) -> None:
    """Writes results as a JSON file, and their table beside it with the ending .md."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, results)
    write_text(path.with_suffix(".md"), table)


def run_script(script: Callable[[], int], on_end: Callable[[], None] = lambda: None) -> int:
    """Runs a script and returns its exit code: that of `script`, or of its error, which is printed in one line.

    SIGTERM ends it with 143, after calling `on_end`.
    """

    def end(*_: Any) -> None:
        on_end()
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    try:
        return script()
    except BertJaxError as error:
        complain(str(error))
        return error.exit_code
