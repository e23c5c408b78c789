"""bert-jax bench CONFIG: measures the train step on this machine and its parts."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from bert_jax.cli.arguments import Arguments, PlaceArgument, dotted
from bert_jax.config.phase import BatchSize, Length
from bert_jax.config.run import RunConfig
from bert_jax.system.bucket import Place, place_of


class Bench(Arguments):
    """Time the train step on random sequences; with a run in place of CONFIG, on the run's sequences."""

    LINE = "bert-jax bench"
    SHORT_HELP_SETTINGS = dotted(
        "model: num-layers hidden-size num-heads compute-dtype attention-dropout",
        "vocabulary: size",
        "optimizer: name",
        "mesh: data fsdp tensor",
        "execution: accumulation remat unroll",
    )
    READS = dotted("vocabulary: file size", "model objective optimizer mesh execution seed")
    config: RunConfig = RunConfig()

    batch_size: BatchSize | None = None
    """Sequences a step. Without it: the batch size of the config's first phase."""
    length: Length | None = None
    """Tokens a sequence. Without it: the length of the config's first phase."""
    seconds: Annotated[float, Field(gt=0.0)] = 10.0
    """Seconds that each part is measured for; at least five times."""
    operations: bool = False
    """Also measure the main operations of a step one by one, and compare each with the limit of the hardware."""
    compare: PlaceArgument | None = None
    """File with the JSON (or all the output) of an earlier bench, here or on another machine: also show both side by
    side, and what differs."""


def run(words: list[str]) -> None:
    """Parses the command line, measures, prints tables and, last, one JSON object."""
    args = Bench.parse(words)
    is_run = place_of(words[0]).is_dir()
    from bert_jax.cli.bench_tables import bench_tables, comparison_lines, comparison_tables
    from bert_jax.cli.tables import as_json
    from bert_jax.model.attention import check_attention
    from bert_jax.model.linear import compute_dtype
    from bert_jax.model.sharding import check_batch_size, make_mesh
    from bert_jax.planning.bench import bench
    from bert_jax.planning.bench_record import read_record
    from bert_jax.pretraining.objective import planned_vocabulary_size, pretraining_trainer
    from bert_jax.system.progress import output, print_line, say
    from bert_jax.training.devices import keep_compiled_programs

    earlier = read_record(args.compare) if args.compare else None
    sizes = {"batch_size": args.batch_size, "length": args.length}
    phase = args.config.phases[0].replace(**{name: size for name, size in sizes.items() if size is not None})
    # Give the phase more steps than the measurement can run.
    config = args.config.replace(phases=(phase.replace(steps=2**30 // phase.batch_size),), profile_steps=None)
    keep_compiled_programs()
    mesh = make_mesh(config.mesh)
    check_batch_size(phase.batch_size, config.execution.accumulation, mesh)
    check_attention(config.execution, config.model, config.rows, mesh)
    if is_run:
        trainer, batches = _trainer_and_batches(config, mesh, place_of(words[0]))
    else:
        # The id of [MASK] makes no difference to the time.
        trainer, batches = pretraining_trainer(config, mesh, planned_vocabulary_size(config), mask_id=4), None
    dtype = compute_dtype(config.model).name
    say(f"Measuring steps of {phase.batch_size:,} sequences of {phase.length:,} tokens, {dtype}")
    measured = bench(trainer, args.seconds, batches, args.operations)
    output.print(*bench_tables(measured), sep="\n")
    if earlier:
        output.print(*comparison_tables(earlier, measured, str(args.compare)), sep="\n")
        for line in comparison_lines(earlier, measured):
            print_line(line)
    print(as_json(measured))


def _trainer_and_batches(config: RunConfig, mesh: Any, path: Place) -> tuple[Any, Iterator[Any]]:
    """The trainer of the run at `path`, and its training batches."""
    # Imported here: random sequences need neither TFDS nor Grain, which an accelerator machine may lack.
    from bert_jax.pretraining.dataset import prepared_for
    from bert_jax.pretraining.objective import pretraining_trainer
    from bert_jax.pretraining.pretrain import training_source
    from bert_jax.run.run_directory import RunDirectory
    from bert_jax.text.tokenizer import load_tokenizer
    from bert_jax.training.batch import read_ahead

    run = RunDirectory(path)
    prepared = prepared_for(config, run, config.phases[0].length)
    vocabulary = load_tokenizer(run.tokenizer).vocabulary
    trainer = pretraining_trainer(config, mesh, len(vocabulary), vocabulary.mask_id)
    return trainer, read_ahead(training_source(trainer, 0, prepared))
