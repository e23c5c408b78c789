"""bert-jax verify RUN: checks that the files of a run are undamaged."""

from bert_jax.cli.arguments import Arguments, RunArgument
from bert_jax.interchange.model_path import local_place


class Verify(Arguments):
    """Check that all files of a run are as they were written."""

    LINE = "bert-jax verify"

    run: RunArgument
    """A run."""

    def execute(self) -> None:
        local_place(self.run, "a run")  # before what reads it is imported
        from bert_jax.run.run_directory import RunDirectory
        from bert_jax.run.verification import NEVER_COVERED, verify
        from bert_jax.system.errors import RunError
        from bert_jax.system.figures import print_rows
        from bert_jax.system.progress import output

        verdicts = verify(RunDirectory(self.run))
        rows = [(each.path.relative_to(self.run).as_posix(), each.damage or each.remark) for each in verdicts]
        print_rows("", ("what", "verdict"), rows)
        output.print(f"Not covered by any checksum: {'; '.join(NEVER_COVERED)}.")
        if damaged := [verdict for verdict in verdicts if verdict.damage]:
            raise RunError(
                f"{len(damaged)} of {len(verdicts)} are damaged or missing, first {damaged[0].path}; a run "
                "continues from its newest good checkpoint; delete damaged data to have it prepared again; "
                "every checkpoint has copies of config.json and tokenizer/"
            )
