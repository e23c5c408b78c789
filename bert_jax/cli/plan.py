"""bert-jax plan CONFIG --topology v5e:4x4: what a TPU slice would make of the run, found without one."""

import json

from bert_jax.cli.arguments import Command, JsonArguments
from bert_jax.config.run import RunConfig


class Plan(JsonArguments):
    """Arguments."""

    topology: str
    """The slice, like v5e:4x4, v6e:8x8, v4:2x2x1 or v5p:4x4x4, of 1 to 1,024 chips."""
    sweep: bool = False
    """Try batch sizes and meshes as well, one compilation each."""
    exact: bool = False
    """Compile as a run does, which takes three times as long. Without it: with the least effort, for a program that
    takes some per cent more memory and moves more."""


COMMAND = Command(
    "plan",
    Plan,
    "Compile the train step for a TPU slice on this machine's CPU (needs the extra `plan`) and tell memory a chip, "
    "collectives and time. The compiler's flags in LIBTPU_INIT_ARGS hold.",
    RunConfig(),
    first=(
        "model.num-layers",
        "model.hidden-size",
        "model.num-heads",
        "model.compute-dtype",
        "vocabulary.size",
        "phases.0.steps",
        "phases.0.length",
        "phases.0.batch-size",
        "mesh.data",
        "mesh.fsdp",
        "mesh.tensor",
        "execution.accumulation",
        "execution.remat",
    ),
    reads=("model", "vocabulary.file", "vocabulary.size", "objective", "optimizer", "phases", "mesh", "execution"),
)


def run(arguments: list[str]) -> None:
    """Parses, compiles each phase's step for the slice, prints what was found."""
    asked = COMMAND.parse(arguments)
    from bert_jax.cli.planning import planned
    from bert_jax.system.progress import output

    result, shown = planned(asked.config, asked.topology, asked.sweep, asked.exact)
    if asked.json:
        print(json.dumps(result))
    else:
        output.print(*shown, sep="\n")
