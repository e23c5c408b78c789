"""The parts that scripts for measurements share: their results in a file, a process for work, errors as exit codes."""

import multiprocessing
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from bert_jax.system.errors import BertJaxError, UsageError
from bert_jax.system.files import write_json, write_text
from bert_jax.system.json_file import read_object
from bert_jax.system.machine import prepare_to_compute
from bert_jax.system.progress import complain
from bert_jax.system.workers import safe_path

Results = TypeVar("Results")


def results_before(path: Path, conditions: dict[str, Any], read: Callable[[dict[str, Any]], Results]) -> Results | None:
    """The results in a JSON file, by `read` from its object; None without a file.

    Raises UsageError if the file is damaged, or if its results were measured under other `conditions`.
    """
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


def in_own_process(function: Any, *arguments: Any) -> Any:
    """Calls `function` in a process that ends afterwards: this one would keep the devices' memory.

    That process is prepared as a command prepares itself, so that the function takes the same time as there.
    """
    context = multiprocessing.get_context("spawn")
    with safe_path(), ProcessPoolExecutor(1, context, initializer=prepare_to_compute) as pool:
        return pool.submit(function, *arguments).result()


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
