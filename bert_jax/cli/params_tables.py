"""The tables of bert-jax params."""

from collections.abc import Iterable

from rich.table import Table

from bert_jax.config.model import ModelConfig
from bert_jax.model.size import HEADS, Part
from bert_jax.planning.model_facts import ModelFacts, PhaseFlops


def parameter_table(model: ModelConfig, counted: list[Part]) -> Table:
    """One row for each part of the model, with subtotals. `model.vocabulary_size` must be set."""
    title = f"{model.num_layers} layers, width {model.hidden_size:,}, {model.vocabulary_size:,} pieces"
    if model.generator:
        title += f"; a generator of width {model.generator.hidden_size:,}"
    table = Table("part", "shape", title=title, title_justify="left")
    table.add_column("a block", justify="right")
    table.add_column("parameters", justify="right")
    own = [part for part in counted if not part.of_generator]
    generator = [part for part in counted if part.of_generator]
    _add_encoder(table, own, model.num_layers)
    _add_total(table, "total without heads", [part for part in own if part.kept])
    _add_heads(table, own)
    _add_total(table, "total with heads", own)
    if generator:
        table.add_row("generator's embeddings", "the tables, shared")
        _add_encoder(table, generator, model.num_layers)
        _add_heads(table, generator)
        _add_total(table, "generator", generator)
        _add_total(table, "total with generator", counted)
    return table


def _add_encoder(table: Table, counted: list[Part], num_layers: int) -> None:
    named = (("embeddings", "embeddings"), ("block", f"{num_layers} blocks"), ("last norm", None), ("pooler", None))
    for group, name in named:
        own = [part for part in counted if part.group == group]
        _add_rows(table, own)
        if name and own:
            _add_total(table, name, own)


def _add_heads(table: Table, counted: list[Part]) -> None:
    for group in HEADS:
        own = [part for part in counted if part.group == group]
        _add_rows(table, own)
        if own and group == "MLM head":
            table.add_row("MLM output", "the word table, shared")


def _add_rows(table: Table, group: Iterable[Part]) -> None:
    for part in group:
        shapes = " + ".join(f"\\[{','.join(map(str, shape))}]" for shape in part.shapes)
        table.add_row(part.name, shapes, *_counts([part], part.group == "block"))


def _add_total(table: Table, name: str, group: list[Part]) -> None:
    counts = _counts(group, all(part.group == "block" for part in group))
    table.add_row(name, "", *counts, style="bold", end_section=True)


def _counts(group: list[Part], of_a_block: bool) -> tuple[str, str]:
    one = f"{sum(part.parameters for part in group):,}" if of_a_block else ""
    return one, f"{sum(part.copies * part.parameters for part in group):,}"


def memory_line(facts: ModelFacts, optimizer: str) -> str:
    """Bytes of parameters and optimizer state over all devices, with padding."""
    return (
        f"Padding of the vocabulary, not counted above: {facts.padding_rows:,} rows, {facts.padding:,} zeros.\n"
        f"Parameters {_megabytes(facts.parameter_bytes)}, state of {optimizer} {_megabytes(facts.optimizer_bytes)}; "
        "--mesh.fsdp splits both.\n"
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def flops_table(phases: Iterable[PhaseFlops]) -> Table:
    """One row for each phase: FLOPs of a sequence and of the phase."""
    table = Table(title="FLOPs of matrix products, without recomputation", title_justify="left")
    for column in ("phase", "length", "predicted", "sequence forward", "sequence trained", "whole phase"):
        table.add_column(column, justify="right")
    for number, phase in enumerate(phases, 1):
        flops = (f"{each:.3e}" for each in (phase.forward, phase.trained, phase.whole))
        table.add_row(f"{number}", f"{phase.length:,}", f"{phase.predicted:,}", *flops)
    return table
