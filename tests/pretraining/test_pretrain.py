"""The main job, whole."""

import contextlib
import json
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import stories
from safetensors.numpy import load_file
from stages import parameters, stopped_at

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.cli.summary import print_results
from bert_jax.config.operation import ExecutionConfig, InputConfig, MeshConfig
from bert_jax.config.phase import Phase
from bert_jax.config.vocabulary import VocabularyConfig
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.shards import ShardReader, shard_path
from bert_jax.instances.store import InstanceSource
from bert_jax.layout import WORD_START
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining import dataset
from bert_jax.pretraining import pretrain as pretrain_module
from bert_jax.pretraining import vocabulary as vocabulary_step
from bert_jax.pretraining.evaluation import HeldOut
from bert_jax.pretraining.inspection import training_step
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.pretraining.pretrain import evaluate_run, pretrain
from bert_jax.run.manifest import Manifest, complete, delete, path_of
from bert_jax.run.measurement import Mean
from bert_jax.run.metrics import read_metrics
from bert_jax.run.run_config import read_config, write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.state import TrainState
from bert_jax.system.errors import Interrupted, RunError, UsageError
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.training import ending, loop
from bert_jax.training.ending import Skips
from bert_jax.training.input import BatchSource

TRAIN_FIELDS = {
    "step", "split", "loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy",
    "learning_rate", "grad_norm", "sequences_per_second", "tokens_per_second", "fill", "mfu", "skipped",
    "skipped_records",
}  # fmt: skip


def prepared_copy(tiny_run, path) -> RunDirectory:
    """A run with tokenizer and data, not yet trained."""
    for name in ("tokenizer", "data"):
        shutil.copytree(tiny_run.path / name, path / name)
    return RunDirectory(path)


def without_speed(lines):
    return [{name: value for name, value in line.items() if not name.endswith("_per_second")} for line in lines]


def test_a_run_leaves_what_the_contract_names(tiny_run, tiny_config):
    names = {path.name for path in tiny_run.path.iterdir()}
    assert {"config.json", "tokenizer", "data", "checkpoints", "metrics.jsonl", "results.json"} <= names
    assert [int(path.name) for path in complete(tiny_run.checkpoints)][-1] == 12
    lines = read_metrics(tiny_run.path / "metrics.jsonl")
    train = [line for line in lines if line["split"] == "train"]
    assert [line["step"] for line in train] == [3, 6, 9, 12] and all(set(line) == TRAIN_FIELDS for line in train)
    evaluations = [line for line in lines if line["split"] == "eval"]
    assert [line["step"] for line in evaluations] == [6, 12]
    assert train[-1]["loss"] == pytest.approx(train[-1]["mlm_loss"] + train[-1]["nsp_loss"], rel=1e-3)
    assert train[0]["loss"] > train[-1]["loss"]
    results = json.loads(tiny_run.results_file.read_text())
    assert results["score"] == results["mlm_accuracy"] == evaluations[-1]["mlm_accuracy"]
    assert results["loss"] == pytest.approx(results["mlm_loss"] + results["nsp_loss"])


def test_the_baseline_is_that_of_frequencies(tiny_run):
    results = json.loads(tiny_run.results_file.read_text())
    prepared = PreparedData.open(tiny_run.data(32))
    counts = prepared.piece_counts
    assert 0.03 < results["baseline"]["mlm_accuracy"] < 0.4
    entropy = -(counts[counts > 0] / counts.sum() * np.log(counts[counts > 0] / counts.sum())).sum()
    assert results["baseline"]["mlm_loss"] == pytest.approx(entropy, rel=0.1)
    assert results["baseline"]["nsp_accuracy"] >= 0.5
    assert results["beats_baseline"] == (results["mlm_loss"] < results["baseline"]["mlm_loss"])


def test_evaluating_the_run_again_gives_the_same_and_changes_nothing(tiny_run):
    before = {path: path.stat().st_mtime_ns for path in tiny_run.path.rglob("*")}
    again = evaluate_run(tiny_run)
    assert again["mlm_loss"] != evaluate_run(tiny_run, dtype="bfloat16")["mlm_loss"]
    expected = json.loads(tiny_run.results_file.read_text())
    assert again == {name: value for name, value in expected.items() if not name.startswith("skipped")}
    assert before == {path: path.stat().st_mtime_ns for path in tiny_run.path.rglob("*")}


def test_the_last_evaluation_gives_the_results(tiny_config, tmp_path, monkeypatch):
    """As measuring the last checkpoint does, where results.json is gone."""
    evaluate, calls = HeldOut.evaluate, []
    monkeypatch.setattr(HeldOut, "evaluate", lambda self, *given: calls.append(1) or evaluate(self, *given))
    run = RunDirectory(tmp_path / "run")
    results = pretrain(tiny_config, run)
    assert len(calls) == 2  # at steps 6 and 12
    run.results_file.unlink()
    assert pretrain(tiny_config, run) == results and len(calls) == 3


def test_a_finished_run_says_so_and_does_nothing(tiny_run, tiny_config, tmp_path, monkeypatch, capsys):
    shutil.copytree(tiny_run.path, tmp_path / "run")
    monkeypatch.setattr(pretrain_module, "make_tokenizer", None)
    assert pretrain(tiny_config, RunDirectory(tmp_path / "run")) == json.loads(tiny_run.results_file.read_text())
    assert "is finished: 12 steps" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize("stop_at", [2, 5, 11])
def test_a_stopped_run_goes_on_bit_for_bit(tiny_run, tiny_config, tmp_path, stop_at):
    run = prepared_copy(tiny_run, tmp_path)
    with stopped_at(stop_at):
        pretrain(tiny_config, run)
    assert int(complete(run.checkpoints)[-1].name) == stop_at
    pretrain(tiny_config, run)
    assert parameters(run.path) == parameters(tiny_run.path)
    ours, theirs = (read_metrics(some.path / "metrics.jsonl") for some in (run, tiny_run))
    assert without_speed(ours) == without_speed(theirs)
    noted = map(json.loads, (run.path / "events.jsonl").read_text().splitlines())
    events = [(event["event"], event["message"]) for event in noted]
    assert events == [
        ("begun", "12 steps"),
        ("stopped", f"after step {stop_at}, with a checkpoint"),
        ("resumed", f"going on from step {stop_at}"),
        ("finished", "step 12"),
    ]


def test_a_stopped_run_goes_on_bit_for_bit_with_muon(tiny_run, tiny_config, tmp_path):
    config = tiny_config.replace(optimizer=tiny_config.optimizer.replace(name="muon"))
    whole, run = (prepared_copy(tiny_run, tmp_path / name) for name in ("whole", "stopped"))
    pretrain(config, whole)
    with stopped_at(5):
        pretrain(config, run)
    pretrain(config, run)
    assert parameters(run.path) == parameters(whole.path) != parameters(tiny_run.path)


def test_accumulation_and_remat_are_the_same_run(tiny_run, tiny_config, tmp_path):
    run = prepared_copy(tiny_run, tmp_path)
    pretrain(tiny_config.replace(execution=ExecutionConfig(accumulation=4, remat="full", unroll=2)), run)
    for ours, theirs in zip(*(read_metrics(some.path / "metrics.jsonl") for some in (run, tiny_run)), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)


def test_a_step_for_which_no_memory_is_left_is_said_in_a_line(tiny_run, tiny_config, tmp_path, monkeypatch):
    run = prepared_copy(tiny_run, tmp_path)

    def full(*arguments):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 26697931256 bytes.\nand more")

    monkeypatch.setattr(loop.jax, "block_until_ready", full)
    with pytest.raises(RunError) as failure:
        pretrain(tiny_config, run)
    assert str(failure.value) == (
        "no memory is left for compiling step 1 of 12 (Training) (Out of memory allocating 26697931256 bytes); give a "
        "smaller batch, or save memory by --execution.remat full and --execution.accumulation N"
    )
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "failed" and "RESOURCE_EXHAUSTED" in events[-1]["message"]


def test_phases_follow_one_another(tiny_run, tiny_config, tmp_path):
    phases = (Phase(steps=4, length=16, batch_size=8), Phase(steps=4, length=32, batch_size=4))
    config = tiny_config.replace(phases=phases)
    run = prepared_copy(tiny_run, tmp_path)
    results = pretrain(config, run)
    assert results["steps"] == 8
    assert [int(path.name) for path in complete(run.checkpoints)] == [4, 8]  # each phase ends with one
    assert {path.name for path in (run.path / "data").iterdir()} == {"length-16", "length-32"}
    first, then = training_step(run, 4).batch, training_step(run, 5)
    second = then.batch
    assert first.tokens.ids.shape == (8, 16) and second.tokens.ids.shape == (4, 32)
    assert second.ordinal[:, 0].tolist() == [0, 1, 2, 3]
    found = InstanceSource(run.data(32), "train").read(then.records)
    assert found.ids.tolist() == second.tokens.ids[second.tokens.sequence > 0].tolist()
    with pytest.raises(UsageError, match="step 9 is none of the run's 8"):
        training_step(run, 9)


@pytest.fixture(scope="module", params=[("unigram", 85), ("byte_bpe", 300)], ids=lambda param: param[0])
def run_of_kind(request, tiny_config, tmp_path_factory):
    """A run over a vocabulary that marks the beginnings of words, with whole-word masking."""
    kind, size = request.param
    run = RunDirectory(tmp_path_factory.mktemp(kind))
    vocabulary = VocabularyConfig(kind=kind, size=size)
    objective = tiny_config.objective.replace(units="word")
    phases = (Phase(steps=2, length=32, batch_size=8),)
    pretrain(tiny_config.replace(vocabulary=vocabulary, objective=objective, phases=phases), run)
    return run


def test_such_a_vocabulary_serves_the_whole_job(run_of_kind):
    bert, asked = bert_jax.load(run_of_kind.path), read_config(run_of_kind.path).vocabulary
    assert (bert.tokenizer.kind, len(bert.tokenizer.vocabulary)) == (asked.kind, asked.size)
    best = bert.fill_mask("The old [MASK] sees the [MASK].")[1][0][0]
    assert {best, best.replace("▁", "Ġ")} & bert.tokenizer.vocabulary.ids.keys()
    assert {path.name for path in run_of_kind.tokenizer.iterdir()} == {
        bert.tokenizer.file_name,
        "tokenizer_config.json",
        "origin.json",
    }
    assert evaluate_run(run_of_kind)["held_out_sequences"]


def test_its_words_are_masked_whole(run_of_kind):
    seen = training_step(run_of_kind, 1)
    tokenizer, batch, targets = seen.tokenizer, seen.batch, seen.targets
    several = 0
    for row, length in enumerate(batch.tokens.length[:, 0]):
        starts = tokenizer.starts_word[batch.tokens.ids[row, :length]] | (
            batch.tokens.units[row, :length] & WORD_START > 0
        )
        word = np.cumsum(starts)
        chosen = targets.masked.places[row][targets.masked.weights[row] > 0].tolist()
        for number in set(word[chosen]):
            whole = np.flatnonzero(word == number).tolist()
            several += len(whole) > 1
            assert set(whole) <= set(chosen)
    assert several


def test_another_kind_leaves_nothing_of_the_one_before(tiny_config, tmp_path):
    run = RunDirectory(tmp_path)
    for kind, name in (("wordpiece", "vocab.txt"), ("bpe", "tokenizer.model")):
        config = tiny_config.replace(vocabulary=VocabularyConfig(kind=kind, size=100))
        assert vocabulary_step.make_tokenizer(config, run).kind == kind
        assert {path.name for path in run.tokenizer.iterdir()} == {name, "tokenizer_config.json", "origin.json"}


def test_a_given_vocabulary_is_used_as_it_is(tiny_run, tiny_config, tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary_step, "train_wordpiece", None)
    given = VocabularyConfig(file=str(tiny_run.tokenizer / "vocab.txt"), lowercase=False)
    run = RunDirectory(tmp_path)
    made = vocabulary_step.make_tokenizer(tiny_config.replace(vocabulary=given), run)
    assert (
        made.vocabulary.pieces == load_tokenizer(tiny_run.tokenizer).vocabulary.pieces and not made.cleaning.lowercase
    )


def test_the_vocabulary_is_made_once_for_the_same_settings(tiny_config, tmp_path, monkeypatch):
    run = RunDirectory(tmp_path)
    first = vocabulary_step.make_tokenizer(tiny_config, run)
    other = vocabulary_step.make_tokenizer(tiny_config.replace(vocabulary=VocabularyConfig(size=140)), run)
    assert (len(first.vocabulary), len(other.vocabulary)) == (150, 140)
    monkeypatch.setattr(vocabulary_step, "train_wordpiece", None)
    vocabulary_step.make_tokenizer(tiny_config.replace(vocabulary=VocabularyConfig(size=140)), run)


def test_changed_text_makes_vocabulary_and_data_anew_until_training_begins(tiny_config, tmp_path, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text(stories(100))
    config, run = tiny_config.replace(data=tiny_config.data.replace(source=f"text:{text}")), RunDirectory(tmp_path)
    made = []

    def prepare():
        with monkeypatch.context() as counting:
            train_wordpiece, prepare_data = vocabulary_step.train_wordpiece, dataset.prepare
            trained = lambda *given, **named: made.append("v") or train_wordpiece(*given, **named)
            counting.setattr(vocabulary_step, "train_wordpiece", trained)
            counting.setattr(dataset, "prepare", lambda *a: made.append("d") or prepare_data(*a))
            vocabulary_step.make_tokenizer(config, run)
            return dataset.prepare_lengths(config, run)[32]

    first = prepare()
    assert prepare() == first and made == ["v", "d"]
    text.write_text(stories(101))
    assert prepare().train.documents == first.train.documents + 1 and made == ["v", "d"] * 2
    text.unlink()  # as where the data was prepared on another machine
    assert prepare().train.documents == first.train.documents + 1 and made == ["v", "d"] * 2


def test_a_changed_vocabulary_file_is_read_again(tiny_run, tiny_config, tmp_path):
    given = tmp_path / "vocab.txt"
    shutil.copy(tiny_run.tokenizer / "vocab.txt", given)
    config = tiny_config.replace(vocabulary=VocabularyConfig(file=str(given)))
    assert len(vocabulary_step.make_tokenizer(config, RunDirectory(tmp_path / "run")).vocabulary) == 150
    given.write_text(given.read_text() + "additional\n")
    assert len(vocabulary_step.make_tokenizer(config, RunDirectory(tmp_path / "run")).vocabulary) == 151


def test_data_of_another_kind_is_refused_for_a_run_under_way(tiny_run, tiny_config, tmp_path):
    shutil.copytree(tiny_run.path, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    run.results_file.unlink()
    vocab = run.tokenizer / "vocab.txt"
    pieces = vocab.read_text().split("\n")
    vocab.write_text("\n".join([*pieces[:-3], *reversed(pieces[-3:-1]), ""]))
    with pytest.raises(RunError, match="tokenizer/vocab.txt is not as it was written; put a good copy in its place"):
        pretrain(tiny_config, run)
    run.manifest.path.unlink()  # without it, no checksum of the tokenizer is known
    with pytest.raises(UsageError, match="prepared from other settings or another tokenizer"):
        pretrain(tiny_config, run)


def test_without_held_out_documents_it_trains_and_says_so(tiny_config, tmp_path, capsys):
    (tmp_path / "few.txt").write_text(stories(8))
    data = tiny_config.data.replace(source=f"text:{tmp_path / 'few.txt'}", held_out=0.0)
    config = tiny_config.replace(
        data=data, vocabulary=VocabularyConfig(size=120), phases=(Phase(steps=2, length=32, batch_size=8),)
    )
    results = pretrain(config, RunDirectory(tmp_path / "run"))
    assert results["steps"] == 2 and "baseline" not in results
    assert "no held-out documents" in capsys.readouterr().err
    manifest = Manifest.at(complete(tmp_path / "run" / "checkpoints")[-1])
    assert manifest.evaluation is None


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"mesh": MeshConfig(fsdp=2)}, "this machine has 1 device"),
        ({"data": {"source": "text:absent"}}, "no file matches 'absent'"),
        ({"vocabulary": VocabularyConfig(file="absent.txt")}, f"no vocabulary at {Path('absent.txt').absolute()}"),
    ],
)
def test_what_can_be_refused_is_refused_before_anything_is_written(tiny_config, tmp_path, changes, words):
    with pytest.raises(UsageError) as refusal:
        pretrain(tiny_config.replace(**changes), RunDirectory(tmp_path / "run"))
    assert words in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_a_stop_whose_checkpoint_fails_is_a_failure(tiny_run, tiny_config, tmp_path, monkeypatch):
    run = prepared_copy(tiny_run, tmp_path)
    monkeypatch.setattr(ending.StopSignals, "requested", True)
    monkeypatch.setattr(Manifest, "of", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="checkpoint 1 could not be written"):
        pretrain(tiny_config, run)


@contextlib.contextmanager
def stopped_in_evaluation(step: int):
    """Within the block, an evaluation gets a SIGTERM at its begin, after which the training ends at `step`."""
    evaluate = HeldOut.evaluate

    def stopped(*given):
        signal.raise_signal(signal.SIGTERM)
        return evaluate(*given)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Interrupted, match=f"stopped at step {step} of"):
        patched.setattr(HeldOut, "evaluate", stopped)
        yield


def test_a_stop_while_it_is_evaluated_is_not_put_off(tiny_run, tiny_config, tmp_path):
    run = prepared_copy(tiny_run, tmp_path)
    with stopped_in_evaluation(6):
        pretrain(tiny_config, run)
    assert [line["split"] for line in read_metrics(run.path / "metrics.jsonl")] == ["train", "train"]
    pretrain(tiny_config, run)
    ours, theirs = (read_metrics(some.path / "metrics.jsonl") for some in (run, tiny_run))
    assert without_speed(ours) == without_speed(theirs)


def test_a_stop_while_the_last_step_is_evaluated_late_leaves_the_run_unfinished(tiny_run, tiny_config, tmp_path):
    run = prepared_copy(tiny_run, tmp_path)
    config = tiny_config.replace(phases=(tiny_config.phases[0].replace(steps=2),))
    for _ in range(2):  # at the step, and late
        with stopped_in_evaluation(2):
            pretrain(config, run)
    pretrain(config, run)
    late = read_metrics(run.path / "metrics.jsonl")[-1]
    assert late["split"] == "eval" and Manifest.at(path_of(run.checkpoints, 2)).evaluation["loss"] == late["loss"]


def batches_of(config, run: RunDirectory) -> BatchSource:
    """Those of the first phase."""
    trainer = pretraining_trainer(config, make_mesh(MeshConfig()), 150, 4)
    return pretrain_module.training_source(trainer, 0, PreparedData.open(run.data(32)))


def poisoned(monkeypatch, steps):
    """Batches of these steps give no finite gradients."""
    read = BatchSource.__getitem__

    def poison(self, number):
        batch = read(self, number)
        return batch._replace(weight=batch.weight * np.inf) if number + 1 in steps else batch

    monkeypatch.setattr(BatchSource, "__getitem__", poison)


def test_too_many_skipped_steps_in_a_row_stop_the_run_with_what_led_to_it(tiny_run, tiny_config, tmp_path, monkeypatch):
    run = prepared_copy(tiny_run, tmp_path)
    poisoned(monkeypatch, {2, 3, *range(6, 12)})
    config = tiny_config.replace(
        execution=ExecutionConfig(max_skipped_steps=3),
        logging=tiny_config.logging.replace(every=100),
        evaluation=tiny_config.evaluation.replace(every=100),
    )
    with pytest.raises(RunError) as failure:
        pretrain(config, run)
    good = run.checkpoints / "00000004"
    said = str(failure.value)
    assert "no finite gradient in 3 steps in a row, up to step 8" in said
    assert f"The last good checkpoint is {good}" in said and good in complete(run.checkpoints)
    source = batches_of(config, run)
    listed = json.loads((run.path / "skipped_steps.json").read_text())
    assert listed == {str(step): source.records(step - 1) for step in (6, 7, 8)}
    assert f"step 6 had {', '.join(map(str, source.records(5)))} (" in said
    first, second = (bert_jax.load(path).params for path in (good, run.checkpoints / "00000008"))
    assert not jax.tree.all(jax.tree.map(np.array_equal, first, second))  # step 5 was a good one


def test_skipped_steps_are_told_and_a_run_of_nothing_else_fails(tiny_run, tiny_config, tmp_path, monkeypatch, capsys):
    config = tiny_config.replace(logging=tiny_config.logging.replace(every=4))
    poisoned(monkeypatch, {2, 3, 9})
    pretrain(config, prepared_copy(tiny_run, tmp_path / "some"))
    said = capsys.readouterr().err
    for words in ("2 of 4 steps had no finite gradient and were skipped", "3 of 12 steps"):
        assert said.count(words) == 1
    assert "2 of 8 steps" not in said
    poisoned(monkeypatch, range(1, 13))  # fewer than max_skipped_steps
    run = prepared_copy(tiny_run, tmp_path / "all")
    with pytest.raises(RunError, match="no finite gradient in 12 steps in a row, .* start a new run$"):
        pretrain(config, run)
    lines = [line for line in read_metrics(run.metrics_file) if line["split"] == "train"]
    assert lines and all(line["loss"] is None and line["tokens_per_second"] is None for line in lines)


def test_the_device_is_asked_for_skipped_steps_only_when_there_may_be_enough(tiny_config):
    class Counter:
        asked = 0

        def __int__(self):
            self.asked += 1
            return self.value

    counter = Counter()
    measured = {"skipped_in_a_row": Mean(counter, None)}
    skips = Skips(10, TrainState(0, None, None, None, 0, 0, 0))
    for step in range(1, 1000):
        counter.value = 0
        assert not skips.too_many(measured, step)
    assert counter.asked == 99
    for in_a_row in range(1, 11):
        counter.value = in_a_row
        assert skips.too_many(measured, 999 + in_a_row) == (10 if in_a_row == 10 else 0)
    assert counter.asked <= 102


def test_a_damaged_record_stops_the_run_or_is_skipped_and_counted(tiny_run, tiny_config, tmp_path, capsys):
    run = prepared_copy(tiny_run, tmp_path)
    shard, records = shard_path(run.data(32), "train", 0), InstanceSource(run.data(32), "train")._starts[1]
    number = next(record for record in batches_of(tiny_config, run).records(4) if record < records)
    data, record = bytearray(shard.read_bytes()), ShardReader(shard, records).read(number)
    data[data.find(record) + len(record) // 2] ^= 4
    shard.write_bytes(data)
    with pytest.raises(
        RunError, match=f"{shard}: record {number} .*of train. is damaged.*--input.damaged-records skip"
    ):
        pretrain(tiny_config, run)
    results = pretrain(tiny_config.replace(input=InputConfig(damaged_records="skip")), run)
    assert results["skipped_records"] == 1 and results["skipped_steps"] == 0
    assert f"record {number}" in capsys.readouterr().err.replace("\n", "")
    lines = [line for line in read_metrics(run.path / "metrics.jsonl") if line["split"] == "train"]
    assert sum(line["skipped_records"] for line in lines) == results["skipped_records"]


def test_other_text_is_measured_whole_and_the_run_stays_as_it_is(tiny_run, corpus, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in tiny_run.path.rglob("*")}
    (tmp_path / "new.txt").write_text(stories(30, first=700))
    measured = evaluate_run(tiny_run, f"text:{tmp_path / 'new.txt'}")
    records = [json.dumps({"body": text}) for text in stories(30, first=700).split("\n\n")]
    (tmp_path / "new.jsonl").write_text("\n".join(records))
    assert measured == evaluate_run(tiny_run, f"jsonl:{tmp_path / 'new.jsonl'}#body")
    expected = json.loads(tiny_run.results_file.read_text())
    assert set(expected) - set(measured) == {"skipped_steps", "skipped_records"} and measured["steps"] == 12
    assert measured["unknown_share"] == 0 and "unknown_share" not in expected
    assert measured["held_out_sequences"] > 1.5 * expected["held_out_sequences"]  # 30 documents to some 12 of 120
    assert measured["mlm_loss"] == pytest.approx(expected["mlm_loss"], rel=0.1)
    assert before == {path: path.stat().st_mtime_ns for path in tiny_run.path.rglob("*")}
    # The model has seen this text, but with other masks and pairs.
    assert evaluate_run(tiny_run, f"text:{corpus}")["held_out_sequences"] > 3 * measured["held_out_sequences"]


def test_text_that_the_vocabulary_cannot_read_is_warned_of(tiny_run, tmp_path, capsys):
    (tmp_path / "zh.txt").write_text("雪下了。山林云雾。\n\n" * 10 + stories(2, first=900))
    measured = evaluate_run(tiny_run, str(tmp_path / "zh.txt"), "Chinese")
    assert 0.05 < measured["unknown_share"] < 1
    said = capsys.readouterr().err
    assert f"WARNING: {measured['unknown_share']:.1%} of the pieces of this text are unknown to the vocabulary" in said


def test_all_of_other_text_is_measured_whatever_is_used_of_held_out_documents(tiny_run, tmp_path):
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(tiny_run.path, run.path)
    config = read_config(run.path)
    write_config(run.config_file, config.replace(evaluation=config.evaluation.replace(max_sequences=8)))
    (tmp_path / "new.txt").write_text(stories(30, first=700))
    assert evaluate_run(run)["held_out_sequences"] == 8
    assert evaluate_run(run, f"text:{tmp_path / 'new.txt'}")["held_out_sequences"] > 30


def test_a_finished_run_takes_more_steps_and_another_phase(tiny_run, tiny_config, tmp_path, capsys):
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(tiny_run.path, run.path)
    more = tiny_config.replace(
        phases=(Phase(steps=14, length=32, batch_size=8), Phase(steps=1, length=16, batch_size=8))
    )
    assert pretrain(more, run)["steps"] == 15
    said = capsys.readouterr().err
    assert "phases.0.steps is 12 there and 14 now" in said and "from step 12 on" in said and "of a run planned" in said
    rates = {
        line["step"]: line["learning_rate"]
        for line in read_metrics(run.path / "metrics.jsonl")
        if "learning_rate" in line
    }
    before = {
        line["step"]: line["learning_rate"]
        for line in read_metrics(tiny_run.path / "metrics.jsonl")
        if "learning_rate" in line
    }
    assert {step: rates[step] for step in before} == before
    assert rates[15] == pytest.approx(
        tiny_config.optimizer.peak_learning_rate * (1 - 13 / 15), rel=1e-5
    )  # of steps 13 to 15
    assert (run.data(16) / "prepared.json").exists()


@pytest.mark.parametrize("steps, length", [(11, 32), (20, 16)])
def test_steps_that_were_taken_cannot_be_planned_otherwise(tiny_run, tiny_config, tmp_path, steps, length):
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(tiny_run.path, run.path)
    with pytest.raises(UsageError, match="is another run: phases.0"):
        pretrain(tiny_config.replace(phases=(Phase(steps=steps, length=length, batch_size=8),)), run)


def test_a_trace_of_some_steps_is_written(tiny_run, tiny_config, tmp_path, capsys):
    run = prepared_copy(tiny_run, tmp_path)
    traced = tiny_config.replace(profile_steps="2:3")
    pretrain(traced, run)
    assert list(run.profile.rglob("*.xplane.pb"))
    assert "trace of steps 2 to 3" in capsys.readouterr().err
    delete(path_of(run.checkpoints, 12))
    pretrain(traced, run)
    assert "profile_steps=2:3 are done already: no trace is written" in capsys.readouterr().err


def test_a_run_without_pairs_measures_masked_words_alone(tiny_config, tmp_path, capsys):
    config = tiny_config.replace(
        objective=tiny_config.objective.replace(pair="none"), phases=(Phase(steps=4, length=32, batch_size=8),)
    )
    run = RunDirectory(tmp_path)
    results = pretrain(config, run)
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert not [name for values in (results, results["baseline"], *lines) for name in values if "nsp" in name]
    assert results["loss"] == results["mlm_loss"]
    assert evaluate_run(run)["mlm_loss"] == results["mlm_loss"]
    seen = training_step(run, 1)
    batch, targets = seen.batch, seen.targets
    assert not batch.tokens.segment.any() and not targets.masked.tokens.segment.any()
    print_results(results)
    assert command(["inspect", str(tmp_path), "--rows", "2"]) == 0
    shown = capsys.readouterr().out
    assert "MLM accuracy" in shown and "NSP" not in shown and "second segment" not in shown
    assert command(["export", str(tmp_path), str(tmp_path / "exported")]) == 0
    assert "exported a BertForMaskedLM" in capsys.readouterr().err.replace("\n", " ")
    exported = load_file(tmp_path / "exported" / "model.safetensors")
    assert not [name for name in exported if "pooler" in name or "seq_relationship" in name]  # which nothing trained


def test_a_run_whose_checkpoints_are_all_damaged_says_that_it_begins_anew(tiny_run, tiny_config, tmp_path, capsys):
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(tiny_run.path, run.path)
    for path in complete(run.checkpoints):
        (path / "config.json").write_text("{}")
    assert pretrain(tiny_config, run)["steps"] == 12
    assert "no good checkpoint left (damaged-000000" in capsys.readouterr().err.replace("\n", " ")
    assert parameters(run.path) == parameters(tiny_run.path)


def test_results_of_fewer_steps_are_not_those_of_the_run(tiny_run, tiny_config, tmp_path):
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(tiny_run.path, run.path)
    stale = json.loads(run.results_file.read_text()) | {"steps": 11}  # as a kill leaves it after steps were added
    run.results_file.write_text(json.dumps(stale))
    assert pretrain(tiny_config, run)["steps"] == json.loads(run.results_file.read_text())["steps"] == 12


def test_other_text_is_measured_once_whatever_the_dupe_factor(tiny_run, tiny_config, tmp_path):
    (tmp_path / "new.txt").write_text(stories(30, first=700))
    count = lambda config, place: (
        dataset.prepare_other(
            config, tiny_run, 32, f"text:{tmp_path / 'new.txt'}", None, tmp_path / place
        ).train.instances
    )
    often = tiny_config.replace(data=tiny_config.data.replace(dupe_factor=3))
    assert count(often, "often") == count(tiny_config, "once")
