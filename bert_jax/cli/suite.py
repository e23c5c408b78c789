"""bert-jax suite FILE --workdir W: trains and measures many models on many tasks by one file, and compares them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.cli.arguments import Arguments
from bert_jax.cli.flags import Positional
from bert_jax.config.settings import Settings
from bert_jax.system.errors import UsageError

if TYPE_CHECKING:
    from bert_jax.products.suite.suite import CheckedSuite
    from bert_jax.products.suite.work import SuiteWork


class RowsOfTasks(Settings):
    """Rows in place of those that the suite's file names: the first file is for its first task, the second for the
    second, and so on. Tasks without a file are left out."""

    train: tuple[str, ...] = ()
    """Files of training rows."""
    dev: tuple[str, ...] = ()
    """Files of dev rows."""
    test: tuple[str, ...] = ()
    """Files of test rows."""


class Suite(Arguments):
    """Measure models on tasks as a TOML file says: pretrains recipes, fine-tunes with each setting and seed, scores
    pairs and judged texts, and writes suite.json and report.html with means, spreads and which differences count. Given
    again, the same command does what is missing.
    """

    LINE = "bert-jax suite"
    WITHOUT_FLAG = (
        "set them in the suite's file, in the table of the task, as texts = [...], label = ..., columns = [...], or in "
        "that of the model, as set = { ... }"
    )

    file: Positional[str]
    """A TOML file, or the name of a suite that bert-jax configs lists."""
    workdir: Path
    """Directory of the runs and results, which is created or continued."""
    data: str | None = None
    """Folder of the rows, pairs and judged texts, in place of the file's `data`."""
    tasks: tuple[str, ...] = ()
    """Tasks to do. Without it: all of the file."""
    models: tuple[str, ...] = ()
    """Models to measure (runs, Hugging Face directories or names of the hub), in place of the file's."""
    seeds: tuple[int, ...] = ()
    """Seeds, in place of the file's."""
    task: RowsOfTasks = RowsOfTasks()
    source: tuple[str, ...] = ()
    """Text of the recipes, in place of the file's `source`."""
    at_once: int = 1
    """Runs at work at a time, each with its share of the CPU's cores."""
    dry_run: bool = False
    """List the runs that are missing, with their estimated hours, and do nothing."""

    def execute(self) -> None:
        from bert_jax.run.config_files import suite_file
        from bert_jax.system.machine import accelerated

        path = suite_file(self.file)
        if accelerated() and self.at_once > 1:
            raise UsageError(f"--at-once {self.at_once}: an accelerator trains one run at a time; leave it out")
        choice = {"models": self.models, "seeds": self.seeds, "source": self.source}
        rows = self.task.model_dump()

        def read() -> "CheckedSuite":
            from bert_jax.products.suite.suite_file import read_suite

            return read_suite(path, self.data, self.tasks, rows, **choice)

        def opened(suite: "CheckedSuite") -> "CheckedSuite":
            from bert_jax.products.suite.opening import with_opened_models

            return with_opened_models(suite)

        run_suite(read, opened, self.workdir, self.at_once, self.dry_run)


def run_suite(
    read: Callable[[], "CheckedSuite"],
    opened: Callable[["CheckedSuite"], "CheckedSuite"],
    workdir: Path,
    at_once: int = 1,
    dry_run: bool = False,
) -> "SuiteWork | None":
    """Executes a suite, prints the table and the verdicts, and returns the work. With `dry_run`, lists the missing runs
    and returns None. `read` returns the suite that the files describe, and `opened` adds what is known once its models
    are open. Raises RunError if a run failed."""
    from bert_jax.system.bucket import in_bucket, place_of
    from bert_jax.system.progress import without_repeats
    from bert_jax.system.workers import available_cores

    # The number of threads doesn't depend on --at-once, because the bits of results depend on it.
    os.environ.setdefault("PJRT_NPROC", str(available_cores()))
    workdir = place_of(workdir)
    if in_bucket(workdir) or workdir.is_file():
        raise UsageError(f"--workdir {workdir}: give a folder on this machine, which is created if it is missing")
    with without_repeats():
        suite = read()
        from bert_jax.products.suite.work import SuiteWork

        SuiteWork(suite, workdir, at_once).check()
        suite = suite.with_places()

        import jax  # takes seconds; the checks above find most mistakes first

        jax.config.update("jax_platforms", "cpu")  # in this process: an accelerator is for the runs
        work = SuiteWork(opened(suite), workdir, at_once)
        if dry_run:
            from bert_jax.products.suite.estimate import print_estimate

            print_estimate(work)
            return None
    _carry_out(work)
    return work


def _carry_out(work: "SuiteWork") -> None:
    """Does the work, and writes and prints the results. Raises RunError if a run failed."""
    from bert_jax.config.wording import counted
    from bert_jax.products.report.report import REPORT_FILE
    from bert_jax.products.suite.suite_page import suite_page
    from bert_jax.products.suite.summary import Summary
    from bert_jax.products.suite.verdict_sentences import verdict_sentences
    from bert_jax.system.errors import RunError
    from bert_jax.system.figures import markdown, print_rows
    from bert_jax.system.files import write_json, write_text
    from bert_jax.system.progress import print_line, say

    title, workdir = work.suite.file.stem, work.workdir

    def written() -> Summary:
        summary = Summary(work)
        write_json(workdir / "suite.json", summary.content)
        return summary

    work.run(written)
    summary = written()
    lines = summary.table()
    print_rows(title, list(lines[0]), [list(line.values()) for line in lines])
    for _, text in verdict_sentences(summary):
        print_line(text)
    write_text(workdir / "table.md", markdown(lines))
    print_line(f"{workdir / 'suite.json'} has every run")
    try:
        write_text(workdir / REPORT_FILE, suite_page(title, summary))
        print_line(f"{workdir / REPORT_FILE} shows them")
    except UsageError as error:  # vl-convert isn't installed
        say(f"{REPORT_FILE} isn't written: {error}")
    if work.failures:
        raise RunError(f"{counted(len(work.failures), 'runs')} failed; the first: {work.failures[0]}")
