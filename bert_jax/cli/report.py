"""bert-jax report RUN [RUN ...]: writes a page about a run, or one that compares several."""

from typing import Annotated

from pydantic import Field

from bert_jax.cli.arguments import Arguments, PlaceArgument
from bert_jax.cli.flags import Positional
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError


class Report(Arguments):
    """Write one HTML file about a run: curves beside their baseline and known runs, a verdict in words, fills,
    attention, data, settings and events; or about several runs, compared. The file needs no network. Works on the CPU
    and changes nothing else, so the run may be training meanwhile.
    """

    LINE = "bert-jax report"

    run: Positional[Annotated[tuple[PlaceArgument, ...], Field(min_length=1)]]
    """A run, or several to compare."""
    output: PlaceArgument | None = None
    """File to write. Without it: report.html in the run; for several runs it must be given."""

    def execute(self) -> None:
        from bert_jax.run.run_files import RunFiles

        runs = [RunFiles(path) for path in dict.fromkeys(self.run)]
        for run in runs:
            _ = run.config  # raises if it is no run, before JAX is imported
        import jax

        from bert_jax.products.page.page import check_can_draw
        from bert_jax.products.report.report import MOST_RUNS, REPORT_FILE, write_report
        from bert_jax.system.files import check_written
        from bert_jax.system.progress import print_line

        if len(runs) > MOST_RUNS:
            raise UsageError(f"{len(runs)} runs are too many for one page; give up to {MOST_RUNS}")
        check_can_draw()
        jax.config.update("jax_platforms", "cpu")  # an accelerator may be training
        if self.output is None and len(runs) > 1:
            raise UsageError("a comparison of several runs needs a file; add --output FILE")
        output = self.output or self.run[0] / REPORT_FILE
        for run in runs if self.output else ():
            if run.path in output.parents and output != run.path / REPORT_FILE:
                raise UsageError(
                    f"--output {output} lies in {run.path} and may replace a file of the run; choose another place"
                )
            check_written(output, str(run.path))
        write_report(output, runs)
        print_line(f"{output}")


def report_of_finished(path: Place) -> None:
    """Writes report.html into the run at `path`, which has just been trained. No failure ends the command."""
    from bert_jax.products.page.page import check_can_draw
    from bert_jax.products.report.report import REPORT_FILE, write_report
    from bert_jax.system.errors import first_line
    from bert_jax.system.progress import say, warn

    try:
        check_can_draw()
    except UsageError as error:
        say(f"{REPORT_FILE} isn't written: {error}")
        return
    try:
        write_report(path / REPORT_FILE, [path])
    except Exception as error:  # whatever it is, the run itself is finished
        warn(f"{path / REPORT_FILE} can't be written ({first_line(error)}); the run is finished all the same")
    else:
        say(f"{path / REPORT_FILE} shows the run on one page")
