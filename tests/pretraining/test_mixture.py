"""Several sources and languages: their shares, how often they are seen, and what is measured of each."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import stories

from bert_jax.config.operation import MeshConfig
from bert_jax.config.settings import SettingsError
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining import pretrain as pretrain_module
from bert_jax.pretraining.dataset import check_preparation, prepare_data
from bert_jax.pretraining.evaluation import evaluate_run
from bert_jax.pretraining.mixture import check_epochs, source_shares, steps_at_words, words_a_step
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.checkpoint_manifest import complete
from bert_jax.run.metrics import read_metrics
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.remarks import by_language
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.system.errors import UsageError


@pytest.fixture(scope="module")
def config(tiny_config, tmp_path_factory):
    """Two languages with weights; of the second there are too few documents to hold some out."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "a.txt").write_text(stories(100))
    texts = ["\n".join(stories(20, first=first).split("\n\n")) for first in (300, 400)]
    (folder / "b.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    sources = (f"text:{folder / 'a.txt'}", f"jsonl:{folder / 'b.jsonl'}#text")
    data = tiny_config.data.replace(source=sources, weights=(1, 3), language=("en", "de"), held_out=0.05)
    return tiny_config.replace(data=data)


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    run = RunDirectory(tmp_path_factory.mktemp("runs") / "run")
    assert pretrain(config, run).steps == 12
    return run


def share_of_second(config, run, phase=0):
    """The share of the second source in the first 10,000 rows of a phase."""
    trainer, prepared = pretraining_trainer(config, make_mesh(MeshConfig()), 150), PreparedData.open(run.data(32))
    order = pretrain_module.training_source(trainer, phase, prepared)._order
    drawn = np.array([order.record(ordinal) for ordinal in range(10_000)])
    assert drawn.max() < sum(prepared.sources)
    return (drawn >= prepared.sources[0]).mean()


@pytest.mark.long
def test_a_run_on_sources_with_weights_draws_its_shares(config, run):
    assert RunFiles(run.path).config == config
    assert share_of_second(config, run) == 0.75
    with pytest.raises(UsageError, match="data.weights.1 is 3.0 there and 4.0 now"):
        pretrain(config.change(data={"weights": (1, 4)}), run)


@pytest.mark.long
def test_shares_are_smoothed_by_phase_and_languages_may_join_later(config, run):
    phase = config.phases[0]
    phases = (phase.replace(languages="de"), phase.replace(smoothing=0.5), phase.replace(smoothing=0.0), phase)
    smoothed = config.replace(phases=phases).change(data={"weights": None, "smoothing": 0.9})
    first, second = PreparedData.open(run.data(32)).sources
    expected = [1, *(second**s / (first**s + second**s) for s in (0.5, 0, 0.9))]
    found = [share_of_second(smoothed, run, number) for number in range(4)]
    assert found == pytest.approx(expected, abs=1e-4)
    assert share_of_second(smoothed.change(data={"weights": (1, 3)}), run, 2) == 0.75  # weights win
    joined = config.replace(phases=(phase.replace(languages=("en", "de")),)).change(data={"weights": None})
    assert share_of_second(joined, run) == pytest.approx(second / (first + second), abs=1e-4)


@pytest.mark.long
def test_each_language_is_measured_and_the_whole_is_their_mean_by_share(run):
    results = json.loads(run.results_file.read_text())
    assert {name.partition("/")[0] for name in results if "/" in name} == {"en", "de"}
    for name in ("loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"):
        assert results[name] == pytest.approx(0.25 * results[f"en/{name}"] + 0.75 * results[f"de/{name}"])
    assert results["en/loss"] != results["de/loss"]
    assert results["en/sequences"] + results["de/sequences"] == results["held_out_sequences"]
    assert results["de/predicted_tokens"] > results["de/sequences"]
    baseline = results["baseline"]
    assert baseline["en/mlm_loss"] != baseline["de/mlm_loss"]
    for name in ("mlm_loss", "mlm_accuracy"):
        assert baseline[name] == pytest.approx(0.25 * baseline[f"en/{name}"] + 0.75 * baseline[f"de/{name}"])
    headings, lines = by_language(Results.model_validate(results).measurements, baseline)
    assert headings[:5] == ["language", "sequences", "predicted tokens", "MLM loss", "by frequency"]
    assert lines[0][:2] == ["de", str(results["de/sequences"])] and all(lines[0])
    evaluations = [line for line in read_metrics(run.metrics_file) if line["split"] == "eval"]
    assert [line["step"] for line in evaluations] == [6, 12]
    assert all(line["de/mlm_loss"] > 0 < line["en/mlm_loss"] for line in evaluations)
    again = evaluate_run(run).content
    of_languages = {name: value for name, value in results.items() if "/" in name}
    assert {name: again[name] for name in of_languages} == pytest.approx(of_languages)


@pytest.mark.long
def test_another_text_is_measured_as_one_and_not_by_language(config, run):
    measured = evaluate_run(run, config.data.source[0], language="en").content
    assert measured["held_out_sequences"] and not any("/" in name for name in measured)


def test_ends_are_held_out_of_sources_with_too_few_documents_alone(run):
    prepared = PreparedData.open(run.data(32))
    documents = [seen.documents for seen in prepared.of_sources]
    assert documents[0] < 100 and documents[1] == 11  # two long ones, cut into eleven
    assert min(prepared.records["held_out"]) > 0


def test_how_often_each_text_is_seen_is_known_and_limited(config, run):
    prepared = {32: PreparedData.open(run.data(32))}
    shares = list(source_shares(config, prepared))
    assert [share.share for share in shares] == [0.25, 0.75]
    rows = prepared[32].sources
    assert [share.epochs for share in shares] == pytest.approx([0.25 * 96 / rows[0], 0.75 * 96 / rows[1]])
    twice = source_shares(config.change(data={"dupe_factor": 2}), prepared)  # of as many sequences: each text is in two
    assert [share.epochs for share in twice] == pytest.approx([2 * share.epochs for share in shares])
    check_epochs(config.change(data={"most_epochs": 9}), shares)
    limited = config.replace(phases=(config.phases[0].replace(steps=10_000),)).change(data={"most_epochs": 9})
    with pytest.raises(UsageError, match=r"--data.most-epochs=9: the text of jsonl:.* would be seen [\d,]+ times"):
        check_epochs(limited, list(source_shares(limited, prepared)))


def test_words_seen_are_those_of_the_text(config, run):
    (phase,), prepared = config.phases, {32: PreparedData.open(run.data(32))}
    first, second = prepared[32].of_sources
    text = Path(config.data.source[0].removeprefix("text:")).read_text()
    assert len(text.split()) * 0.8 < first.words < len(text.split())  # the rest is held out
    each = [source.words / source.rows for source in (first, second)]
    assert words_a_step(config, 0, prepared[32]) == pytest.approx(phase.batch_size * (each[0] + 3 * each[1]) / 4)


def test_a_text_cut_twice_is_seen_as_often_by_as_many_steps(config, tmp_path):
    """An epoch of the sequences of dupe_factor=2 sees the text twice."""
    seen = []
    for dupe_factor in (1, 2):
        once = config.change(data={"weights": None, "dupe_factor": dupe_factor})
        path = RunDirectory(tmp_path / str(dupe_factor))
        path.open(once)
        data = prepare_data(once, path, check_preparation(once, path, OpenedModels()))
        rows = data.prepared[32].train.rows
        seen.append((rows, *(share.epochs for share in data.shares), words_a_step(once, 0, data.prepared[32])))
    assert seen[1][0] == pytest.approx(2 * seen[0][0], rel=0.02)
    assert seen[1][1:] == pytest.approx(seen[0][1:], rel=0.02)


@pytest.mark.long
def test_checkpoints_are_kept_at_numbers_of_words(config, run, tmp_path, capsys):
    prepared = {32: PreparedData.open(run.data(32))}
    words = int(words_a_step(config, 0, prepared[32]))
    kept = config.change(checkpoints={"every": 100, "keep_at_words": (words // 2, 2 * words, 5 * words, 90 * words)})
    assert list(steps_at_words(kept, prepared)) == [1, 2, 5]  # the training ends before the last
    for steps in (3, 12):  # the second call goes on
        again = RunDirectory(tmp_path / "run")
        assert pretrain(kept.replace(phases=(kept.phases[0].replace(steps=steps),)), again).steps == steps
    assert [int(path.name) for path in complete(again.checkpoints)] == [1, 2, 5, 12]  # with keep=2 alone 5 and 12
    assert f"kept of 2 steps: 1 ({words // 2:,} words), 2 (" in capsys.readouterr().err
    two = kept.replace(phases=(kept.phases[0].replace(steps=3), kept.phases[0]))
    assert list(steps_at_words(two, prepared)) == [1, 2, 5]


def test_words_of_data_that_does_not_know_them_are_refused(config, run):
    found = PreparedData.open(run.data(32))
    earlier = found.model_copy(update={"train": dataclasses.replace(found.train, words=0)})
    assert not steps_at_words(config, {32: earlier})
    with pytest.raises(UsageError, match="keep-at-words needs the number of words of the text, which the prepared"):
        steps_at_words(config.change(checkpoints={"keep_at_words": (1,)}), {32: earlier})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data.smoothing": 1.5}, "smoothing=1.5: expected a number of at least 0 and of at most 1"),
        ({"data.most_epochs": 0}, "most-epochs=0: expected a finite number above 0"),
        ({"checkpoints.keep_at_words": (2, 2)}, "keep-at-words=2 follows 2; give each number once, ascending"),
        ({"checkpoints.keep_at_words": (0,)}, "keep-at-words.0=0: expected whole numbers above 0"),
        ({"phases.0.smoothing": -1}, "smoothing=-1: expected a number of at least 0"),
        ({"phases.0.languages": "hi"}, "--phases.0.languages=hi: no source is in it; --data.language names en de"),
        ({"phases.0.languages": "xyzzy"}, "languages: xyzzy is no language"),
    ],
)
def test_settings_that_cannot_be_are_refused(config, changes, words):
    with pytest.raises(SettingsError, match=words):
        config.set(changes)
