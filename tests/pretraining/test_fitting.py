"""The config adapt: a published model goes on with a text."""

from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils
from jax.sharding import AbstractMesh
from safetensors.numpy import load_file

import bert_jax
from bert_jax import records
from bert_jax.cli.main import run as command
from bert_jax.config.data import VocabularyConfig
from bert_jax.config.fitted import ScratchConfig, heads_of
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import SettingsError
from bert_jax.config.training import Phase
from bert_jax.inference.bert import load
from bert_jax.model.sharding import MESH_AXES
from bert_jax.pretraining import fitting
from bert_jax.pretraining import pretrain as pretraining
from bert_jax.pretraining.dry_run import pretraining_estimates
from bert_jax.pretraining.fitting import harm_of, harms
from bert_jax.pretraining.mixture import SourceShare
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.config_files import load_config
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.remarks import adaptation as remark
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import UsageError

MPNET = Path(__file__).parents[1] / "golden" / "relatives" / "mpnet"


def fitted(config, opened=None):
    return fitting.fitted(config, opened or OpenedModels())


FIRST, SECOND = Phase(steps=2, length=32, batch_size=8, trains="words"), Phase(steps=4, length=32, batch_size=8)


@pytest.fixture
def adapt(tiny_run, tiny_config):
    config = bert_jax.configs.adapt.replace(
        init=str(tiny_run.path),
        phases=(FIRST, SECOND),
        data=tiny_config.data,
        vocabulary=VocabularyConfig(),
        preparation=tiny_config.preparation,
        logging=tiny_config.logging,
    )
    return config.change(evaluation={"every": 3, "max_sequences": 16})


def test_the_model_gives_its_settings_and_the_config_those_that_it_changes(adapt, tiny_config):
    config = fitted(adapt)
    assert type(config) is type(tiny_config)
    assert config.model.num_layers == tiny_config.model.num_layers and config.model.dropout == 0.0
    assert fitted(tiny_config) is tiny_config


def test_a_value_that_was_given_counts_also_if_it_is_the_default(adapt, tiny_config, tmp_path, monkeypatch):
    opened, trained = OpenedModels(), TrainedModel.open(Path(adapt.init))
    changed = trained._replace(config=trained.config.replace(dropout=0.3))
    monkeypatch.setattr(opened, "model", lambda name: changed)
    model = adapt.replace(model=ModelConfig())
    for config, dropout in ((model, 0.3), (model.set({"model.dropout": ModelConfig().dropout}), 0.1), (adapt, 0.0)):
        of_run = fitted(config, opened).model
        assert (of_run.dropout, of_run.num_layers) == (dropout, tiny_config.model.num_layers)
    assert not fitted(adapt).vocabulary.exchange
    exchanging = fitted(adapt.set({"vocabulary.size": VocabularyConfig().size}))
    assert exchanging.vocabulary.exchange and exchanging.phases == (FIRST, SECOND)
    assert fitted(adapt.set({"vocabulary.kind": "wordpiece"})).vocabulary.exchange
    other = adapt.set({"model.num_layers": ModelConfig().num_layers})
    with pytest.raises(UsageError, match=rf"--model.num-layers is {tiny_config.model.num_layers} there and 12 here"):
        pretrain(other, RunDirectory(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_an_encoder_without_a_head_gets_one_near_the_identity(adapt, vectors_run, tmp_path, capsys):
    config = adapt.replace(init=str(vectors_run.path))
    results = pretrain(config, RunDirectory(tmp_path / "run"))
    assert "begins near the identity" in " ".join(capsys.readouterr().err.split())
    entropy = results.baseline["mlm_loss"]
    assert abs(results.started_from["mlm_loss"] - entropy) < 1.5  # its bias has the pieces' frequencies
    began = load(tmp_path / "run")
    bias = np.asarray(began.params["masked_lm"]["bias"])
    pieces = len(began.tokenizer.vocabulary)
    assert len(bias) > pieces and bias[pieces:].max() < -50  # transformers would predict rows without a piece
    assert command(["export", str(tmp_path / "run"), str(tmp_path / "exported")]) == 0
    exported = load_file(tmp_path / "exported" / "model.safetensors")
    assert not [name for name in exported if "pooler" in name]  # the vectors' model has none, and nothing trained one


def test_layers_of_a_model_give_an_adapted_one_its_depth(adapt, tiny_config):
    assert fitted(adapt.replace(init_layers=(1,))).model.num_layers == 1
    assert fitted(adapt.replace(init_layers=(0, 1, 1))).model.num_layers == 3
    with pytest.raises(SettingsError, match="--init-layers=0 names 1 of the layers of --init=model, and --model.num-"):
        tiny_config.replace(init="model", init_layers=(0,))


def test_a_file_of_other_pieces_replaces_the_vocabulary(adapt, tmp_path, capsys):
    """Unless the model's padding has another number."""
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]))
    assert fitted(adapt.change(vocabulary={"file": str(file)})).vocabulary.exchange
    assert "takes the place of the model's vocabulary" in " ".join(capsys.readouterr().err.split())
    settings = bert_jax.configs.adapt.set({"init": str(MPNET), "vocabulary.file": str(file)})
    with pytest.raises(UsageError, match="padding is piece 0 of the vocabulary, and every MPNet has piece 1; give"):
        fitted(settings)


def test_adapt_without_init_is_refused(adapt):
    with pytest.raises(UsageError, match="adapt needs --init as well"):
        fitted(adapt.replace(init=None))


@pytest.fixture
def timed(monkeypatch):
    """Has a row of a batch take so many seconds, and no memory for more than `room` rows; gives the sizes tried."""

    def set_to(seconds, room=1000):
        tried = []

        def measured(config, size, batch):
            tried.append(batch)
            if batch > room:
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")
            return seconds(batch)

        monkeypatch.setattr(fitting, "_row_seconds", measured)
        return tried

    return set_to


@pytest.mark.parametrize(
    "seconds, phases",
    [
        (lambda batch: 0.001, [(64, 625), (64, 1250)]),
        (lambda batch: 0.001 if batch < 32 else 0.0013, [(16, 2500), (16, 5000)]),
        (lambda batch: 1.0, [(8, 5), (8, 10)]),
    ],
    ids=["fast", "slower in larger batches", "slow"],
)
def test_minutes_fit_batch_and_steps_to_a_measured_step(adapt, timed, seconds, phases):
    timed(seconds)
    found = fitted(adapt.set({"vocabulary.size": 90}).replace(minutes=2)).phases
    assert [(phase.batch_size, phase.steps) for phase in found] == phases


def test_an_adapted_model_is_evaluated_four_times_unless_the_config_says_when(adapt, tiny_run, monkeypatch):
    """And a run under way keeps its steps between evaluations and checkpoints."""
    published = adapt.replace(evaluation=EvaluationConfig(watch=True), checkpoints=CheckpointConfig())
    for steps, every in ((3, 1), (90, 23), (5000, 250)):
        config = fitted(published.replace(phases=(SECOND.replace(steps=steps),)))
        assert (config.evaluation.every, config.checkpoints.every) == (every, every) and config.evaluation.watch
    config = fitted(published.set({"evaluation.every": 1000}))
    assert (config.evaluation.every, config.checkpoints.every) == (1000, 2)
    there = tiny_run.files.pretraining_config
    config = fitting.fitted(published.set({"checkpoints.every": 5}), OpenedModels(), tiny_run)
    assert (config.evaluation.every, config.checkpoints.every) == (there.evaluation.every, 5)


def test_a_new_vocabulary_is_shown_with_what_the_model_needs_before_and_after(adapt, tmp_path, capsys):
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]))
    for given, pieces in ({"vocabulary.size": 90}, 90), ({"vocabulary.file": str(file)}, 31):
        fitted(adapt.set(given))
        said = " ".join(capsys.readouterr().err.split())
        assert "parameters (4,800 of them in the table of words), " in said and "GFLOPs a step; with the new" in said
        assert f"parameters ({pieces * 32:,} of them in the table of words)" in said


def test_a_model_that_is_the_teacher_too_is_opened_once_and_the_measured_step_has_it(adapt, tmp_path, monkeypatch):
    opened, taught = [], []
    real = TrainedModel.open
    monkeypatch.setattr(TrainedModel, "open", lambda place: opened.append(place) or real(place))
    monkeypatch.setattr(fitting, "_row_seconds", lambda config, *_: taught.append(config.distillation.settings) or 1.0)
    list(pretraining_estimates(adapt.replace(teacher=adapt.init, minutes=2), tmp_path / "run", OpenedModels()))
    assert len(opened) == 1 and taught and all(taught)


def test_a_batch_that_memory_does_not_hold_is_not_taken(adapt, timed, capsys):
    timed(lambda batch: 0.001, room=32)
    assert {phase.batch_size for phase in fitted(adapt.replace(minutes=2)).phases} == {32}
    assert "no memory for batches of 64 rows" in capsys.readouterr().err


def test_without_memory_for_the_batch_that_was_given_a_smaller_one_is_measured(adapt, timed):
    tried = timed(lambda batch: 0.001, room=2)
    assert {phase.batch_size for phase in fitted(adapt.replace(minutes=2)).phases} == {2} and tried == [8, 4, 2]
    timed(lambda batch: 0.001, room=0)
    with pytest.raises(UsageError, match="no memory for a step of 1 row; give a smaller model"):
        fitted(adapt.replace(minutes=2))


def test_a_batch_that_the_devices_do_not_divide_is_refused_before_a_step_is_measured(adapt, monkeypatch):
    monkeypatch.setattr(fitting, "make_mesh", lambda config: AbstractMesh((3, 1, 1), MESH_AXES))
    monkeypatch.setattr(fitting, "_row_seconds", None)
    with pytest.raises(UsageError, match="a batch of 8 doesn't divide over 3 devices; choose a multiple of 3"):
        fitted(adapt.replace(minutes=2))


@pytest.mark.long
def test_a_step_is_measured(adapt):
    assert 0 < fitting._row_seconds(fitted(adapt), 150, 8) < 10


@pytest.mark.long
def test_an_adapted_run_compares_its_end_with_its_start(adapt, tmp_path):
    texts = [f"The garden of house {at} lies near the river. It has trees and {at} stones." for at in range(80)]
    run = RunDirectory(tmp_path / "run")
    results = pretrain(adapt.change(data={"held_out": 0.3}), run, source=texts, init=adapt.init)
    start = results.started_from
    assert start["bits_per_character"] > 0 and -1 <= start["mean_cosine"] <= 1
    assert "bits per character" in remark(results)
    worse = results.updated({"bits_per_character": start["bits_per_character"] + 1})
    assert remark(worse).startswith("The model is worse than the one that it began with")
    resumed = pretrain(adapt.change(data={"held_out": 0.3}), run, source=texts, init=adapt.init)
    assert resumed.started_from == start


def test_a_collapse_and_a_loss_above_the_start_end_the_training():
    start = {"loss": 3.0, "mean_cosine": 0.8}
    assert "collapsed" in harm_of(start, {"loss": 2.0, "mean_cosine": 0.995}, 0.1)
    assert harm_of(start, {"loss": 3.1, "mean_cosine": 0.8}, 0.2) is None
    assert "gets worse" in harm_of(start, {"loss": 3.1, "mean_cosine": 0.8}, 0.6)
    assert harm_of(start, {"loss": 2.9, "mean_cosine": 0.8}, 0.9) is None
    taught = {"loss": 2.9, "mlm_loss": 3.1, "teacher_loss": 1.0}
    assert harm_of(start | {"mlm_loss": 3.0}, taught, 0.9) is None


def test_what_harms_is_said_before_the_training(adapt):
    share = SourceShare(source="x", language="mt", sequences=10, tokens=100, unknown=0, share=1.0, epochs=0.01)
    warnings = list(harms(adapt.change(optimizer={"peak_learning_rate": 0.01}), [share]))
    assert "20 times the rate" in warnings[0] and "sees 1.0% of the text" in warnings[1]
    assert not list(harms(adapt, [share.model_copy(update={"epochs": 2.0})]))


def scratch(folder, text):
    """The config scratch_small with this text, which is written to a file in `folder`."""
    (folder / "text.txt").write_text(text)
    return bert_jax.configs.scratch_small.set({"data.source": f"text:{folder / 'text.txt'}"})


LINE = "the old house by the river\n\n"


@pytest.mark.parametrize("lines, layers, pieces", [(40, 2, 2048), (300_000, 4, 8192)])
@pytest.mark.long(first=1)
def test_a_model_from_scratch_has_a_size_for_its_words(tmp_path, lines, layers, pieces):
    config = fitted(scratch(tmp_path, LINE * lines).replace(passes=2.0))
    assert (config.model.num_layers, config.vocabulary.size) == (layers, pieces)
    [phase] = config.phases
    assert phase.steps == max(1, round(2 * lines * 6 * 1.5 / (phase.batch_size * phase.length)))


def test_a_vocabulary_from_scratch_has_room_for_the_characters_of_the_text(tmp_path):
    """Of two thousand characters, as of a Japanese text, which has no spaces; a byte-level BPE needs none."""
    random = np.random.default_rng(0)
    text = "".join("".join(map(chr, 0x4E00 + random.integers(0, 2000, 40))) + "\n\n" for _ in range(2000))
    config = scratch(tmp_path, text).replace(passes=2.0)
    settings = fitted(config)
    assert 2.9 * 2000 < settings.vocabulary.size <= 3 * 2000
    [phase] = settings.phases
    assert phase.steps == pytest.approx(2 * 80_000 * 0.75 / (phase.batch_size * phase.length), rel=0.01)
    assert fitted(config.set({"vocabulary.kind": "byte_bpe"})).vocabulary.size == 2048


def test_the_size_of_a_vocabulary_that_replaces_the_models_follows_from_the_words(adapt, tmp_path, monkeypatch):
    sizes = {words: fitting.pieces_of_words(words) for words in (0, 60_000, 2.3e6, 1e9)}
    assert sizes == {0: 2048, 60_000: 2048, 2.3e6: 16_384, 1e9: 32_768}
    exchanging = adapt.replace(data=scratch(tmp_path, LINE * 40).data).set({"vocabulary.kind": "wordpiece"})
    assert fitted(exchanging).vocabulary.size == 2048
    directory = RunDirectory(tmp_path / "run")
    directory.open(fitted(exchanging))
    monkeypatch.setattr(RunDirectory, "under_way", True)
    (tmp_path / "text.txt").write_text(LINE * 70_000)  # a run keeps the size with which it began
    assert fitting.fitted(exchanging, OpenedModels(), directory).vocabulary.size == 2048


def test_few_words_are_seen_often_and_no_budget_of_minutes_more_than_a_hundred_times(tmp_path, timed, capsys):
    config = scratch(tmp_path, LINE * 2000)

    def passes(**given):
        [phase] = fitted(config.replace(**given)).phases
        return phase.steps * phase.batch_size * phase.length / (12_000 * 1.5)

    assert passes() == pytest.approx(100, rel=0.01) and passes(passes=7.0) == pytest.approx(7, rel=0.1)
    timed(lambda batch: 0.001)
    assert passes(minutes=0.1) == pytest.approx(6000 * 64 / 18_000, rel=0.01)
    assert passes(minutes=60) == pytest.approx(100, rel=0.05)
    said = " ".join(capsys.readouterr().err.split())
    assert "steps take 0.469 of the 60 minutes, since more passes over so little text don't help" in said
    assert passes(minutes=60, passes=20.0) == pytest.approx(20, rel=0.05)


def test_a_text_without_words_is_left_to_the_preparation(tmp_path):
    settings = scratch(tmp_path, "\n\n\n")
    assert fitted(settings).phases[0].steps == 1
    with pytest.raises(UsageError, match="no text"):
        pretrain(settings, RunDirectory(tmp_path / "run"))


def test_words_are_those_of_the_whole_text_where_a_sample_of_it_is_kept(tmp_path, monkeypatch):
    config = scratch(tmp_path, "".join(f"house {number} by the river\n\n" for number in range(2000)))
    whole = fitted(config).phases[0].steps
    monkeypatch.setattr(records.sample, "SAMPLE_BYTES", 10_000)
    assert fitted(config).phases[0].steps == pytest.approx(whole, rel=0.05)


def test_sizes_of_ones_own_are_kept(tmp_path):
    """Also if they are the defaults."""
    settings = scratch(tmp_path, LINE * 40)
    for hidden_size, heads, size in ((256, 4, 300), (768, 12, VocabularyConfig().size)):
        given = {"vocabulary.size": size, "model.hidden_size": hidden_size, "model.num_heads": heads}
        config = fitted(settings.set(given))
        assert (config.model.num_layers, config.model.hidden_size, config.vocabulary.size) == (2, hidden_size, size)


def test_the_words_are_those_that_the_first_host_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(fitting, "wait_for_all", lambda name: None, raising=False)
    monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", lambda counted: (np.float32(300_000), counted[1]))
    config = fitted(scratch(tmp_path, LINE * 40))
    assert (config.model.num_layers, config.vocabulary.size) == (3, 4096)


def test_the_heads_follow_from_a_width_of_ones_own(tmp_path):
    widths = {16: 1, 128: 2, 192: 3, 200: 4, 256: 4, 372: 6, 1024: 16, 254: None, 33: None}
    assert {width: heads_of(width) for width in widths} == widths
    settings = scratch(tmp_path, LINE * 40)
    model = fitted(settings.set({"model.hidden-size": 200})).model
    assert (model.hidden_size, model.num_heads, model.feedforward_size) == (200, 4, 528)
    assert fitted(settings.replace(model=ModelConfig(hidden_size=372))).model.num_heads == 6
    assert fitted(settings.set({"model.hidden_size": 200, "model.num_heads": 2})).model.num_heads == 2
    with pytest.raises(UsageError, match="--model.hidden-size=254 can't be divided into heads of about 64 features"):
        settings.set({"model.hidden_size": 254})


@pytest.fixture
def begun(tiny_run, tiny_config):
    """A ScratchConfig without sizes of its own, with the other settings of `tiny_run`."""
    given = tiny_config._explicit | {"model": ModelConfig(), "vocabulary": VocabularyConfig()}
    return ScratchConfig(**given | {"phases": (Phase(steps=10_000, length=32, batch_size=8),)})


def test_settings_that_are_given_to_a_scratch_run_under_way_are_compared_with_its_own(begun, tiny_run):
    def checked(values):
        config = fitting.fitted(begun.set(values), OpenedModels(), tiny_run)
        tiny_run.check(config)
        return config

    there = tiny_run.files.pretraining_config
    for values in ({}, {"model.num_layers": 2}, {"vocabulary.size": 150}, {"minutes": 5}):
        assert checked(values).flat() == there.flat()
    others = {"model.num_layers": (2, 6), "model.hidden_size": (32, 64), "vocabulary.size": (150, 9000)}
    others |= {"phases.0.length": (32, 16), "phases.0.batch_size": (8, 16)}
    for name, (old, new) in others.items():
        flag = name.replace("_", "-")
        with pytest.raises(UsageError, match=f"is another run: .*--{flag} is {old} there and {new} now"):
            checked({name: new})


def test_the_fitted_steps_of_a_run_under_way_are_kept_and_the_run_as_the_config_gets_more(begun, tiny_run, capsys):
    steps = fitting.fitted(begun.replace(passes=99.0), OpenedModels(), tiny_run).phases[0].steps
    said = " ".join(capsys.readouterr().err.split())
    longer = f"pretrain {tiny_run.path} --workdir {tiny_run.path} --phases.0.steps=MORE"
    assert steps == 12 and "with more than 12 steps in its last phase" in said and longer in said
    config = load_config(str(tiny_run.path), RunConfig).set({"phases.0.steps": 20})
    tiny_run.check(fitting.fitted(config, OpenedModels(), tiny_run))
    assert "planned with 20 steps" in " ".join(capsys.readouterr().err.split())


@pytest.mark.long
def test_a_model_that_gets_worse_ends_the_training_with_its_results(adapt, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pretraining, "harm_of", lambda start, now, done: "it gets worse" if done >= 0.5 else None)
    config, run = adapt.change(data={"held_out": 0.3}), RunDirectory(tmp_path / "run")
    results = pretrain(config, run)
    assert results.stopped_early and results.steps == 3 and run.newest_step == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "step 3: it gets worse; training ends here" in said
    assert f"held-out loss is {run.checkpoints / '00000003'}" in said and "initial model is better" not in said
    pretraining._say_lowest_loss(run, results.updated({"started_from": {"loss": 0.25}}))
    assert "; the initial model is better, with 0.250 in place of " in " ".join(capsys.readouterr().err.split())
    assert pretrain(config, run).steps == 3  # finished


@pytest.mark.long
def test_harm_that_shows_after_the_last_step_alone_is_said(adapt, tmp_path, monkeypatch, capsys):
    """A run whose only evaluations are the first and the last, such as one of a suite."""
    monkeypatch.setattr(pretraining, "harm_of", lambda start, now, done: "it collapsed" if done == 1.0 else None)
    results = pretrain(adapt.change(data={"held_out": 0.3}), RunDirectory(tmp_path / "run"))
    said = capsys.readouterr().err
    assert not results.stopped_early and f"step {results.steps}: it collapsed" in said and "ends here" not in said
