"""bert-jax bench CONFIG: measures the train step and its parts on this machine."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from bert_jax.cli.arguments import Arguments, dotted, objective_of_config
from bert_jax.config.finetune import AnyRunConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import BatchSize, Length
from bert_jax.system.bucket import Place

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from bert_jax.training.batch import AnyBatch
    from bert_jax.training.trainer import Trainer


class Bench(Arguments):
    """Time the train step on random sequences; with a pretraining run in place of CONFIG, on the run's sequences; with
    a fine-tuned run, on random rows of its task."""

    LINE = "bert-jax bench"
    SHORT_HELP_SETTINGS = dotted(
        "model: num-layers hidden-size num-heads compute-dtype attention-dropout",
        "vocabulary: size",
        "optimizer: name",
        "mesh: data fsdp tensor",
        "execution: accumulation remat unroll",
    )
    READS = dotted(
        "vocabulary: file size",
        "model objective teacher distillation optimizer mesh execution seed layers-frozen probe",
        "task: most-negatives pool directions widths",
    )
    ALIASES = {"task.batch-size": "batch-size"}
    config: AnyRunConfig = RunConfig()

    batch_size: BatchSize | None = None
    """Sequences a step; of a fine-tuned run rows of its task, such as pairs of texts. Without it: the batch size of the
    config's first phase."""
    length: Length | None = None
    """Tokens of a sequence or packed row. Without it: the length of the config's first phase."""
    seconds: Annotated[float, Field(gt=0.0)] = 10.0
    """Seconds to measure each part for; each is measured at least five times."""

    def execute(self) -> None:
        from bert_jax.model.kernels.platform import compute_dtype
        from bert_jax.model.sharding import make_mesh
        from bert_jax.products.bench.bench import bench
        from bert_jax.system.figures import json_line
        from bert_jax.system.progress import output, say
        from bert_jax.training.compiled_programs import keep_compiled_programs
        from bert_jax.training.devices import with_even_batches
        from bert_jax.training.trainer import Trainer

        keep_compiled_programs()
        config = _of_first_phase(self)
        mesh = make_mesh(config.mesh)
        config = with_even_batches(config, mesh)
        # More steps than the measurement can run.
        config = config.set({"phases.0.steps": 2**30 // config.phases[0].batch_size})
        if config.task is None and self.run_of_config and (self.run_of_config / "data").exists():
            trainer, batches = _trainer_and_batches(config, mesh, self.run_of_config)
        else:
            trainer, batches = Trainer(config, mesh, objective_of_config(config, self.opened)), None
        phase, texts = config.phases[0], config.sequences(0)
        held = f" with {texts:,} texts" if texts != phase.batch_size else ""
        dtype = compute_dtype(config.model).name
        rows = "rows" if held else "sequences"
        say(f"Measuring steps of {phase.batch_size:,} {rows} of {phase.length:,} tokens{held}, {dtype}")
        measured = bench(trainer, self.seconds, batches)
        output.print(*measured.tables(), sep="\n")
        print(json_line(measured))


def _of_first_phase(args: Bench) -> AnyRunConfig:
    config = args.config.replace(phases=args.config.phases[:1], profile_steps=None)
    sizes = {"phases.0.length": args.length, **dict.fromkeys(config.batch_sizes, args.batch_size)}
    return config.set({"phases.0.steps": 1} | {name: size for name, size in sizes.items() if size is not None})


def _trainer_and_batches(config: RunConfig, mesh: "Mesh", path: Place) -> "tuple[Trainer, Iterator[AnyBatch]]":
    # Imported here: random sequences need neither TFDS nor Grain, which an accelerator machine may lack.
    from bert_jax.pretraining.pretrain import prepared_phase
    from bert_jax.run.run_directory import RunDirectory
    from bert_jax.training.batch import read_ahead

    trainer, source, _ = prepared_phase(config, RunDirectory(path), 0, mesh)
    return trainer, read_ahead(source)
