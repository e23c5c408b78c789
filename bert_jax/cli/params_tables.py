"""The tables of bert-jax params."""

from collections.abc import Iterable
from typing import Any

import jax
from rich.table import Table

from bert_jax.cli.published import PublishedCount
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.model.bert import parameter_shapes
from bert_jax.model.embeddings import padded_vocabulary_size
from bert_jax.model.size import HEADS, Part, forward_flops, num_parameters, parts, train_flops
from bert_jax.training.optimizer import make_optimizer


def parameter_table(model: ModelConfig) -> Table:
    """One row for each part of the model, with subtotals. `model.vocabulary_size` must be set."""
    title = f"{model.num_layers} layers, width {model.hidden_size:,}, {model.vocabulary_size:,} pieces"
    table = Table("part", "shape", title=title, title_justify="left")
    table.add_column("a block", justify="right")
    table.add_column("parameters", justify="right")
    groups: dict[str, list[Part]] = {}
    for part in parts(model):
        groups.setdefault(part.group, []).append(part)
    _add_rows(table, groups["embeddings"])
    _add_total(table, "embeddings", groups["embeddings"])
    _add_rows(table, groups["block"])
    _add_total(table, f"{model.num_layers} blocks", groups["block"])
    _add_rows(table, groups["pooler"])
    _add_total(table, "total without heads", [part for part in parts(model) if part.group not in HEADS])
    _add_rows(table, groups["MLM head"])
    table.add_row("MLM output", "the word table, shared")
    _add_rows(table, groups["NSP head"])
    _add_total(table, "total with heads", parts(model))
    return table


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


def published_table(counts: Iterable[PublishedCount]) -> Table:
    """One row for each term, and below them the published count that they add up to."""
    table = Table("against published figures")
    table.add_column("parameters", justify="right")
    for count in counts:
        for name, parameters in count.terms.items():
            table.add_row(name, f"{parameters:,}")
        table.add_row(count.source, f"{count.parameters:,}", style="bold", end_section=True)
    return table


def memory_line(model: ModelConfig, config: RunConfig) -> str:
    """Bytes of parameters and optimizer state over all devices, with padding."""
    shapes = parameter_shapes(model)
    state = jax.eval_shape(make_optimizer(config.optimizer).init, shapes)
    rows = padded_vocabulary_size(model) - model.vocabulary_size
    padding = sum(leaf.size for leaf in jax.tree.leaves(shapes)) - num_parameters(model)
    return (
        f"Padding of the vocabulary, not counted above: {rows:,} rows, {padding:,} zeros.\n"
        f"Parameters {_megabytes(shapes)}, state of {config.optimizer.name} {_megabytes(state)}; "
        "--mesh.fsdp splits both.\n"
    )


def _megabytes(tree: Any) -> str:
    return f"{sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)) / 1e6:,.1f} MB"


def flops_table(model: ModelConfig, config: RunConfig) -> Table:
    """One row for each phase: FLOPs of a sequence and of the phase."""
    table = Table(title="FLOPs of matrix products, without recomputation", title_justify="left")
    for column in ("length", "predicted", "sequence forward", "sequence trained", "whole phase"):
        table.add_column(column, justify="right")
    for phase in config.phases:
        predicted = config.objective.slots(phase.length)
        training = train_flops(model, phase.length, predicted)
        whole = training * phase.batch_size * phase.steps
        forward = forward_flops(model, phase.length, predicted)
        table.add_row(f"{phase.length:,}", f"{predicted:,}", f"{forward:.3e}", f"{training:.3e}", f"{whole:.3e}")
    return table
