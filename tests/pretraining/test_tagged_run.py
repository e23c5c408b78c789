"""A run with the tags of a treebank as a second question: what it measures, that it goes on bit for bit, on one device
as on eight, and what others read of it."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stages import parameters
from treebanks import conllu, sentences

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.operation import MeshConfig
from bert_jax.config.prediction import UNIVERSAL_TAGS
from bert_jax.config.settings import SettingsError
from bert_jax.config.training import Phase
from bert_jax.instances.instances import UNTAGGED
from bert_jax.model.sharding import make_mesh
from bert_jax.model.size import model_parts
from bert_jax.pretraining import evaluation
from bert_jax.pretraining.dataset import prepared_for, treebanks_of
from bert_jax.pretraining.evaluation import evaluate_run
from bert_jax.pretraining.initial import initial_parameters, open_initial
from bert_jax.pretraining.inspection import seen_sequences
from bert_jax.pretraining.mixture import words_a_step
from bert_jax.pretraining.objective import MaskedTokens, TaggedTokens, pretraining_objective, pretraining_trainer
from bert_jax.pretraining.pretrain import pretrain, training_source
from bert_jax.run.metrics import read_metrics
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import UsageError
from bert_jax.training.step import example_keys

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    path = tmp_path_factory.mktemp("treebank") / "train.conllu"
    path.write_text(conllu(sentences(120)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def config(tiny_config, treebank):
    objective = {"pair": "none", "tags": str(treebank), "tags_weight": 2.0}
    changed = tiny_config.change(objective=objective, model={"dropout": 0.1}, optimizer={"peak_learning_rate": 3e-3})
    return changed.replace(phases=(Phase(steps=24, length=32, batch_size=32),))


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    run = RunDirectory(tmp_path_factory.mktemp("tagged") / "run")
    pretrain(config, run)
    return run


def lines(run, split="train"):
    return [line for line in read_metrics(run.metrics_file) if line["split"] == split]


def test_tags_are_learned_and_measured_on_held_out_sentences(run, config):
    results, baseline = run.results(24), run.results(24).baseline
    assert baseline["tag_accuracy"] < results.tag_accuracy <= 1
    for line in (*lines(run), *lines(run, "eval")):
        within = 1e-9 if line["split"] == "eval" else 1e-3  # steps have different numbers of words
        assert line["loss"] == pytest.approx(line["mlm_loss"] + 2 * line["tag_loss"], rel=within)
    assert lines(run, "eval")[-1]["tag_accuracy"] == results.tag_accuracy
    assert lines(run)[0]["tag_loss"] > lines(run)[-1]["tag_loss"]
    assert run.files.config == config.change(objective={"tags_hash": run.files.config.objective.tags_hash})


def test_evaluate_measures_the_held_out_sentences_as_the_training_does(run, capsys):
    again, results = evaluate_run(run), run.results(24)
    for name in ("loss", "mlm_loss", "tag_loss", "tag_accuracy"):
        assert getattr(again, name) == pytest.approx(getattr(results, name), rel=1e-6)
    assert again.baseline["tag_accuracy"] == results.baseline["tag_accuracy"]
    assert "tags" not in capsys.readouterr().err
    assert command(["evaluate", str(run.path)]) == 0
    assert "most frequent tag" in capsys.readouterr().out
    mean = evaluate_run(run, average=2)
    assert mean.tag_loss != again.tag_loss and len(mean.averaged_steps) == 2


def test_evaluate_says_why_tags_are_not_measured(run, treebank, monkeypatch, capsys):
    def said():
        results = evaluate_run(run)
        assert results.loss == results.mlm_loss == pytest.approx(run.results(24).mlm_loss, rel=1e-6)
        assert "tag_loss" not in results.metrics and "tag_accuracy" not in results.baseline
        lines = capsys.readouterr().err.splitlines()
        return next(line for line in lines if line.startswith("tags aren't measured: "))

    content = treebank.read_bytes()
    try:
        treebank.write_text(conllu(sentences(119)), encoding="utf-8")
        assert f"the sentences of --objective.tags={treebank} have changed; put the file back" in said()
        treebank.unlink()
        assert str(treebank) in said()
    finally:
        treebank.write_bytes(content)
    monkeypatch.setattr(evaluation, "is_elsewhere", lambda place: True)
    assert f"{treebank} isn't on this machine, and a run's file may not name" in said()


def test_text_of_evaluate_has_no_tags_and_a_line_says_so(run, corpus, capsys):
    assert "tag_loss" not in evaluate_run(run, f"text:{corpus}").metrics
    assert "tags aren't measured: text has none; without --data" in capsys.readouterr().err


def test_it_goes_on_bit_for_bit(run, config, resumed):
    assert parameters(resumed(config, 5, run).path) == parameters(run.path)


def test_it_does_not_go_on_with_another_file(run, config, tmp_path, capsys):
    copy = RunDirectory(shutil.copytree(run.path, tmp_path / "run"))
    (tmp_path / "train.conllu").write_text(conllu(sentences(119)), encoding="utf-8")
    with pytest.raises(UsageError, match="is another run: the sentences of --objective.tags have changed; "):
        pretrain(config.change(objective={"tags": str(tmp_path / "train.conllu")}), copy)
    write_config(copy.config_file, copy.files.config.change(objective={"tags": str(tmp_path / "train.conllu")}))
    with pytest.raises(UsageError, match=r"the sentences of --objective.tags=.* have changed; put the file back"):
        seen_sequences(RunDirectory(copy.path), 1, rows=8)


def source(run, config, size, rows=None, length=32):
    phases = (Phase(steps=4, length=length, batch_size=size),)
    trainer = pretraining_trainer(config.replace(phases=phases), make_mesh(MeshConfig()), 150)
    treebank = treebanks_of(run.files.config, run.files.tokenizer)[length]
    whole = training_source(trainer, 0, prepared_for(run.files.config, run, length), treebank)
    if rows is not None:
        whole._rows = rows
    return whole


def test_a_row_is_a_function_of_its_ordinal(run, config):
    """Whatever the size of the batch, and whichever rows a host reads."""
    large, small = source(run, config, 24), source(run, config, 6)
    joined = [small[number] for number in range(4)]
    for part in ("ids", "units", "length"):
        rows = np.concatenate([getattr(batch.tokens, part) for batch in joined])
        assert np.array_equal(getattr(large[0].tokens, part), rows)
    tags = np.concatenate([batch.tags for batch in joined])
    assert np.array_equal(large[0].tags, tags)
    assert ((tags != UNTAGGED).any(axis=1) == (np.arange(24) % 8 == 7)).all()
    half = source(run, config, 24, np.arange(12, 24))[0]
    assert np.array_equal(half.tags, tags[12:]) and np.array_equal(half.ordinal, large[0].ordinal[12:])


def test_no_token_of_the_treebank_is_predicted_and_each_tag_counts(run, config):
    batch = jax.tree.map(jnp.asarray, source(run, config, 8)[0])
    objective = pretraining_objective(config, 150)
    targets = objective.targets(batch, example_keys(0, "targets", 0, batch.ordinal))
    assert targets.masked.weights[:7].sum(axis=1).min() > 0 == targets.masked.weights[7].sum()
    assert np.array_equal(targets.masked.tokens.ids[7], batch.tokens.ids[7])
    counts = objective.counts(targets)
    assert counts["tag_loss"] == (batch.tags[7] != UNTAGGED).sum() > 5
    params = objective.init(jax.random.key(0))
    measured = jax.jit(objective.measure)(params, targets, None)
    assert set(measured) == set(objective.measurements)
    assert all(measured[name].count == counts[name] for name in objective.losses)
    without = jax.jit(MaskedTokens(objective._config, 4).measure)(params, targets, None)
    np.testing.assert_allclose(measured["mlm_loss"].total, without["mlm_loss"].total, rtol=1e-5)


def test_the_encoder_begins_as_without_tags(config):
    tagged = pretraining_objective(config, 150)
    plain = pretraining_objective(config.change(objective={"tags": None, "tags_hash": None}), 150)
    assert type(tagged) is TaggedTokens and type(plain) is MaskedTokens
    params = tagged.init(jax.random.key(0))
    assert params.pop("tag")["dense"]["kernel"].shape == (32, 17)
    assert jax.tree.all(jax.tree.map(np.array_equal, params, plain.init(jax.random.key(0))))
    shape = (8, 32)
    assert tagged.flops(shape) > plain.flops(shape) and tagged.random_batch(shape).tags.shape == shape
    assert plain.random_batch(shape).tags is None
    parts = [model_parts(each.model, each.parameter_shapes) for each in (tagged, plain)]
    of_tagged, of_plain = ([part for part in of_model if part.in_encoder] for of_model in parts)
    assert of_tagged == of_plain


def test_an_eighth_of_the_rows_is_not_of_the_text(run, config):
    prepared = prepared_for(run.files.config, run, 32)
    text = config.change(objective={"tags": None, "tags_hash": None})
    assert words_a_step(config, 0, prepared) == 7 / 8 * words_a_step(text, 0, prepared)


def test_others_read_the_model_without_its_head(run, config, tmp_path, capsys):
    said = f"{run.path}: the head for the tags of {config.objective.tags} is left out"
    for _ in range(2):
        bert = bert_jax.load(run.path)
        assert capsys.readouterr().err.replace("\n", "").count(said) == 1
    assert "tag" not in bert.params and bert.fill_mask("The [MASK] sees the dog.")
    assert command(["export", str(run.path), str(tmp_path / "exported")]) == 0
    assert "tag" not in bert_jax.load(tmp_path / "exported").params
    initial, mesh = open_initial(config.replace(init=str(run.path)), OpenedModels()), make_mesh(MeshConfig())
    began = initial_parameters(initial, config, run.files.tokenizer, mesh)
    assert said in capsys.readouterr().err.replace("\n", "") and "tag" not in began
    assert pretraining_trainer(config, mesh, 150).initial_state(began).params["tag"]  # a new one


def test_inspect_shows_the_tags_of_the_rows_of_the_treebank(run):
    seen = seen_sequences(run, 1, rows=8)
    tags = [[piece.answer for piece in one.pieces if piece.answer in UNIVERSAL_TAGS] for one in seen]
    assert [len(of_row) > 0 for of_row in tags] == [False] * 7 + [True] and tags[-1][-1] == "PUNCT"
    words = [piece.text for piece in seen[-1].pieces if piece.begins_word]
    assert len(words) == len(tags[-1]) + 2 and words[0] == "[CLS]" and words[-2:] == [".", "[SEP]"]


def test_packed_rows_have_tags(packed_config, treebank, tmp_path):
    phases = (packed_config.phases[0].replace(steps=3),)
    config = packed_config.replace(phases=phases).change(objective={"pair": "none", "tags": str(treebank)})
    results = pretrain(config, tmp_path / "run")
    assert results.tag_accuracy > 0
    batch = source(RunDirectory(tmp_path / "run"), config, 8, length=128)[0]
    assert (batch.tokens.length[7] > 0).sum() == 4 and (batch.tags[7] != UNTAGGED).sum() > 30


def test_eight_devices_train_as_one(run, config, check_on_eight):
    in_parts = config.change(execution={"accumulation": 2})
    check_on_eight(in_parts, run, "loss", "mlm_loss", "tag_loss", "tag_accuracy")


def test_what_does_not_fit_is_refused(config, tmp_path, capsys):
    with pytest.raises(SettingsError, match="--objective.pair=next_sentence: the sentences of a treebank are no pair"):
        config.change(objective={"pair": "next_sentence"})
    with pytest.raises(SettingsError, match="with --objective.predict=next: tags are learned beside masked tokens; "):
        config.change(objective={"predict": "next"})
    with pytest.raises(UsageError, match="objective=MaskedTokens: expected a subclass of TaggedTokens, the class of"):
        bert_jax.pretrain(config, tmp_path / "run", objective=MaskedTokens)
    with pytest.raises(UsageError, match="nowhere.conllu: there is no such file"):
        pretrain(config.change(objective={"tags": str(tmp_path / "nowhere.conllu")}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
