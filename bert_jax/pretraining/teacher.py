"""The teacher of a pretraining, as a trained model: opened, checked and read."""

import itertools
import math

from jax.sharding import Mesh

from bert_jax.config.run import RunConfig
from bert_jax.model.bert import Parameters
from bert_jax.model.positions import SCHEMES
from bert_jax.pretraining.distillation import Teacher
from bert_jax.pretraining.initial import of_layers
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import Setting, UsageError
from bert_jax.text.tokenizer import Tokenizer


def open_teacher(config: RunConfig, opened: OpenedModels) -> TrainedModel | None:
    """The model that `config.teacher` names, or None. Raises UsageError if it is missing or can't teach a model of
    `config`."""
    if config.teacher is None:
        return None
    trained = opened.model(config.teacher)
    setting, learned, model = Setting("teacher", config.teacher), config.distillation, trained.config
    if model.one_sided:
        raise UsageError(f"{setting}: {model.one_sided} a token, and a teacher must see both sides; choose another")
    if model.class_token != config.model.class_token or (model.has_query_stream and learned.kind == "predictions"):
        raise UsageError(
            f"{setting} doesn't arrange or predict the tokens of a row as BERT does "
            f"({Setting('model.class_token', model.class_token)}, {Setting('model.positions', model.positions)}); "
            "choose another teacher"
        )
    if learned.kind == "predictions" and "masked_lm" not in trained.shapes:
        raise UsageError(
            f"{setting} has no masked-language head to predict with; set {Setting('distillation.kind', 'relations')}, "
            "which need none"
        )
    phase = max(range(len(config.phases)), key=config.longest)
    longest, decodes = config.longest(phase), learned.kind == "predictions" and model.mask_decoder
    if (SCHEMES[model.positions].learns_vectors or decodes) and longest > model.max_positions:
        raise UsageError(
            f"{setting} has {model.max_positions} positions, and sequences have up to {longest} tokens; lower "
            f"--phases.{phase}.length"
        )
    if learned.kind == "relations":
        if (learned.layer or 0) >= model.num_layers:
            raise UsageError(
                f"{Setting('distillation.layer', learned.layer)}: {config.teacher} has {model.num_layers} layers, "
                f"numbered from 0 to {model.num_layers - 1}; choose one of them"
            )
        widths = model.hidden_size, config.model.hidden_size
        if any(width % learned.relation_heads for width in widths):
            common = math.gcd(*widths)
            divisors = [number for number in range(1, common + 1) if common % number == 0]
            raise UsageError(
                f"{Setting('distillation.relation_heads', learned.relation_heads)} doesn't divide both widths, "
                f"{widths[0]} of the teacher and {widths[1]} of the model; choose one of {' '.join(map(str, divisors))}"
            )
    return trained


def with_teacher(config: RunConfig, trained: TrainedModel | None, begun: RunConfig | None = None) -> RunConfig:
    """`config` with the settings of its teacher, the opened model `trained`; `config` itself without a teacher.
    `begun`: the settings of a run under way, whose teacher isn't opened again."""
    if config.teacher and begun:
        return config.change(distillation={"settings": begun.distillation.settings})
    if trained is None:
        return config
    model, learned = trained.config, config.distillation
    if learned.kind == "relations":  # these need the encoder alone
        model = model.encoder.replace(num_layers=model.num_layers if learned.layer is None else learned.layer + 1)
    return config.change(distillation={"settings": model.model_dump_json()})


def with_named_teacher(config: RunConfig, opened: OpenedModels) -> RunConfig:
    """`config` with the settings of the teacher that it names, which is opened only if they aren't known. Raises what
    `open_teacher` does."""
    known = config.teacher is None or config.distillation.settings
    return config if known else with_teacher(config, open_teacher(config, opened))


def check_pieces(config: RunConfig, teacher: Tokenizer, student: Tokenizer) -> None:
    """Raises UsageError if the pieces of teacher and student differ."""
    theirs, ours = teacher.vocabulary.pieces, student.vocabulary.pieces
    if theirs == ours:
        return
    pairs = enumerate(itertools.zip_longest(theirs, ours))
    number, pair = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    first, second = ("none" if piece is None else repr(piece) for piece in pair)
    remedy = "leave out the settings of the vocabulary to take the teacher's"
    if config.init and not config.vocabulary.file:
        remedy = f"choose a teacher with the vocabulary of {Setting('init', config.init)}"
    raise UsageError(
        f"{Setting('teacher', config.teacher)} has another vocabulary than the model: piece {number} is {first} there "
        f"and {second} here; {remedy}"
    )


def teacher_parameters(teacher: Teacher, trained: TrainedModel, mesh: Mesh) -> Parameters:
    """The parameters of `teacher` on `mesh`: those parts of the opened model `trained` that it uses."""
    trained, whole = trained.with_parameters(mesh)
    params = teacher.own_parts(whole)
    return params if teacher.predicts else of_layers(params, trained.config, range(teacher.model.num_layers))
