"""The tables of bert-jax params."""

from collections.abc import Iterable

import jax

from bert_jax.config.finetune import AnyRunConfig
from bert_jax.config.prediction import PAIR_QUESTIONS
from bert_jax.model.bert import split_teacher, without
from bert_jax.model.embeddings import padded_vocabulary_size
from bert_jax.model.size import HEADS, ModelPart, bytes_of, model_parts, num_parameters, optimizer_bytes
from bert_jax.system.figures import Table, gigabytes
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.step import Objective

_ENCODER = ("embeddings", "block", "last norm", "pooler")
"""The groups of parameters of the model without its heads."""


def parameter_table(objective: Objective, config: AnyRunConfig) -> Table:
    """The numbers of parameters of the objective's model, by part, with totals."""
    model = objective.model
    title = f"{model.num_layers} layers, width {model.hidden_size:,}, {model.vocabulary_size:,} pieces"
    if model.generator:
        title += f"; a generator of {model.generator.num_layers} layers, width {model.generator.hidden_size:,}"
    table = Table(title, "part", "shape", ">a block", ">parameters")
    counted = model_parts(model, objective.parameter_shapes)
    if config.objective:
        question = PAIR_QUESTIONS[config.objective.pair]
        pair = f"{question.label} dense" if question else "pair dense, not trained"
        counted = [part._replace(name=pair) if part.group == "pair head" else part for part in counted]
    of_model = [part for part in counted if not part.is_generator]
    generator = [part for part in counted if part.is_generator]
    _add_groups(table, of_model, _ENCODER, model.num_layers)
    _add_total(table, "total without heads", [part for part in of_model if part.in_encoder])
    if any(not part.in_encoder for part in of_model):
        _add_groups(table, of_model, HEADS, model.num_layers)
        _add_total(table, "total with heads", of_model)
    if generator:
        if model.shared_embeddings == "all":
            table.add_row("generator's embeddings", "the tables, shared")
        assert model.generator is not None, "its parameters are there"
        _add_groups(table, generator, (*_ENCODER, *HEADS), model.generator.num_layers)
        _add_total(table, "generator", generator)
        _add_total(table, "total with generator", counted)
    return table


def _add_groups(table: Table, counted: list[ModelPart], groups: Iterable[str], num_layers: int) -> None:
    """Adds a row for each part of `groups`, and the subtotals of embeddings and blocks."""
    for group in groups:
        group_parts = [part for part in counted if part.group == group]
        for part in group_parts:
            shapes = " + ".join(f"[{','.join(map(str, shape))}]" for shape in part.shapes)
            table.add_row(part.name, shapes, *_counts([part], group == "block"))
        if group_parts and group in ("embeddings", "block"):
            _add_total(table, _blocks(group_parts, num_layers) if group == "block" else group, group_parts)
        if group_parts and group == "MLM head" and "MLM table" not in {part.name for part in group_parts}:
            table.add_row("MLM output", "the word table, shared")


def _blocks(block_parts: list[ModelPart], num_layers: int) -> str:
    shared = max(part.copies for part in block_parts) < num_layers
    return f"{num_layers} blocks" + (" (shared)" if shared else "")


def _add_total(table: Table, name: str, group: list[ModelPart]) -> None:
    counts = _counts(group, all(part.group == "block" for part in group))
    table.add_row(name, "", *counts, style="bold", end_section=True)


def _counts(group: list[ModelPart], of_a_block: bool) -> tuple[str, str]:
    one = f"{sum(part.parameters for part in group):,}" if of_a_block else ""
    return one, f"{sum(part.copies * part.parameters for part in group):,}"


def memory_lines(objective: Objective, config: AnyRunConfig) -> str:
    """Bytes of parameters and optimizer state over all devices, with padding. Nothing is allocated."""
    model, shapes = objective.model, objective.parameter_shapes
    own, of_teacher = split_teacher(shapes)
    optimizer_state = gigabytes(optimizer_bytes(make_optimizer(config.optimizer), own))
    padded = padded_vocabulary_size(model)
    rows = padded - (model.num_word_rows or padded)
    trained = without(own, ["bert/spelling"])
    padding_parameters = sum(leaf.size for leaf in jax.tree.leaves(trained)) - num_parameters(model, shapes=shapes)
    teacher = f", those of the teacher {gigabytes(bytes_of(of_teacher))}" if of_teacher else ""
    return (
        f"Padding of the vocabulary, not counted above: {rows:,} rows, {padding_parameters:,} zeros.\n"
        f"Parameters {gigabytes(bytes_of(own))}{teacher}, state of {config.optimizer.name} {optimizer_state}; "
        "--mesh.fsdp splits both.\n"
    )


def flops_table(objective: Objective, config: AnyRunConfig) -> Table:
    """One line for each phase: FLOPs of a batch row, which is one sequence unless packed, and of the phase."""
    columns = (">phase", ">length", ">predicted", ">row forward", ">row trained", ">whole phase")
    table = Table("FLOPs of matrix products, without recomputation", *columns)
    for number, phase in enumerate(config.phases, 1):
        predicted = config.slots(phase.length)
        shape = config.ids_shape(number - 1)
        forward, step = objective.forward_flops(shape), objective.flops(shape)
        trained = step / phase.batch_size
        counts = (f"{each:.3e}" for each in (forward / phase.batch_size, trained, step * phase.steps))
        table.add_row(f"{number}", f"{phase.length:,}", f"{predicted:,}" if predicted else "none", *counts)
    return table
