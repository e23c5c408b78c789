"""Maps a function over the machines of an Apache Spark cluster."""

import contextlib
import functools
import os
import shutil
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bert_jax.system.errors import (
    BertJaxError,
    RunError,
    Setting,
    UsageError,
    check_installed,
    did_you_mean,
    first_line,
)
from bert_jax.system.progress import warn
from bert_jax.system.workers import safe_path

if TYPE_CHECKING:
    from pyspark import SparkContext

Item = TypeVar("Item")
Result = TypeVar("Result")

_DEFAULTS = {"spark.app.name": "bert_jax", "spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
_POLL_S = 0.5
_PYTHON_ERROR = "PythonException"


class Spark:
    """A connection to Spark; the process may have one at a time."""

    def __init__(self, context: "SparkContext"):
        self._context = context

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item], finished: Callable[[int], None]
    ) -> list[Result]:
        """`map` with one task for each item. Calls `finished` with the number of finished tasks, twice a second.

        Raises the BertJaxError that `function` raises, and RunError if Spark gives up a task, for example because its
        worker dies too often (spark.task.maxFailures).
        """
        if not items:
            return []
        task = functools.partial(_outcome, function, Path.cwd())
        with ThreadPoolExecutor(1) as thread:
            collected = thread.submit(lambda: self._context.parallelize(items, len(items)).map(task).collect())
            try:
                while not collected.done():
                    time.sleep(_POLL_S)
                    finished(self._tasks_finished())
                outcomes = collected.result()
            except BaseException as error:
                with contextlib.suppress(Exception):  # Spark's process may be dead
                    self._context.cancelAllJobs()
                if isinstance(error, Exception):
                    raise RunError(
                        f"Spark failed ({_reason(error)}); give the same command again: finished chunks are kept"
                    ) from error
                raise
        results = []
        for outcome in outcomes:
            if isinstance(outcome, BertJaxError):
                raise outcome
            results.append(outcome)
        return results

    def _tasks_finished(self) -> int:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        return sum(stage.numCompletedTasks for stage in stages if stage)


@contextlib.contextmanager
def connected(options: Sequence[str], processes: int | None) -> Iterator[Spark]:
    """Connects to Spark with `options`, each KEY=VALUE, until the block ends. `processes`: number of processes on this
    machine, unless the options have spark.master. Without both, Spark's own configuration decides; its default is one
    process for each core of this machine. Raises UsageError if PySpark or Java is missing, or if Spark refuses an
    option."""
    check_spark()
    settings = _DEFAULTS | ({"spark.master": f"local[{processes}]"} if processes else {})
    settings |= dict(option.split("=", 1) for option in options)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    on_interruption = signal.getsignal(signal.SIGINT)
    try:
        with warnings.catch_warnings():
            # JAX warns about any fork, though this one becomes Java at once. PySpark warns about pandas, which isn't
            # used.
            warnings.simplefilter("ignore")
            from pyspark import SparkConf, SparkContext

            of_workers = {"TOKENIZERS_PARALLELISM": "false", "PYTHONSAFEPATH": "1"}
            with safe_path():
                context = SparkContext(conf=SparkConf().setAll(list(settings.items())), environment=of_workers)
    except Exception as error:  # Py4J's error, which holds Spark's exception, or PySpark's own
        given = f"{Setting('preparation.spark', ' '.join(options))}, " if options else ""
        raise UsageError(
            f"Spark can't be started ({_reason(error)}); what it printed above says more: mend {given}Spark's own "
            "configuration or the installation of Java"
        ) from None
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interruption)  # PySpark has set its own handler
        _warn_of_names(context, settings)
        yield Spark(context)
    finally:
        _stop(context)


def check_spark() -> None:
    """Raises UsageError if PySpark or Java is missing."""
    check_installed(f"{Setting('preparation.engine', 'spark')} needs PySpark", "pyspark", "spark")
    if not shutil.which("java") and not os.environ.get("JAVA_HOME"):
        raise UsageError(
            f"{Setting('preparation.engine', 'spark')} needs Java 17 or newer, and there is no java; install it (on "
            "Debian and Ubuntu the package openjdk-17-jre-headless) or set JAVA_HOME"
        )


def _stop(context: "SparkContext") -> None:
    """Disconnects, and ends the Java process if this program started it: it would take memory during the training."""
    gateway = context._gateway
    assert gateway, "a connection has a gateway"
    with contextlib.suppress(Exception):  # the Java process may be dead
        context.stop()
        gateway.shutdown()
    if gateway.proc:  # None where spark-submit started this program
        gateway.proc.stdin.close()  # Java ends when this pipe closes
        gateway.proc.wait()
        type(context)._gateway = type(context)._jvm = type(context)._active_spark_context = None


def _warn_of_names(context: "SparkContext", settings: Collection[str]) -> None:
    """Warns of unknown options whose names are similar to one in Spark's list, because Spark ignores unknown options.
    Other unknown options may belong to parts that Spark loads later."""
    assert context._jvm, "a connection has Java's process"
    entries = context._jvm.org.apache.spark.internal.config.ConfigEntry.listAllEntries().toArray()
    known = {entry.key() for entry in entries} | set(_DEFAULTS) | {"spark.master"}
    for name in settings:
        if name not in known and (meant := did_you_mean(name, known, cutoff=0.9)):
            warn(f"Spark doesn't know the option {name} yet; {meant}")


def _outcome(function: Callable[[Item], Result], directory: Path, item: Item) -> Result | BertJaxError:
    """The result of `function`, called in `directory`, which relative paths refer to. An error for the user is returned
    and not raised, because Spark would try the task again."""
    try:
        if directory.is_dir():  # the folder exists on all machines unless everything is in buckets
            os.chdir(directory)
        return function(item)
    except OSError as error:
        return RunError(
            f"a worker of Spark on {socket.gethostname()} failed ({error}); let all machines share the file system of "
            "the text and of the run, with the right to write there, or give both in a bucket"
        )
    except BertJaxError as error:
        return error


def _reason(error: Exception) -> str:
    """Why Spark failed, in one line. Spark's message has the exception of Java first, and that of Python last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(_PYTHON_ERROR in line for line in lines):
        return next((line for line in lines if line[0].isupper() and "Error: " in line), lines[0])
    return next((line for line in lines if "Exception: " in line), first_line(error))
