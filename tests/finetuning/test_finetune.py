"""Fine-tuning end to end, on a task that is learned in seconds: which of two kinds of things a text is about."""

import contextlib
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import jax
import numpy as np
import pytest
from stages import parameters

import bert_jax
from bert_jax.cli.main import run as bert_jax_command
from bert_jax.config.finetune import FinetuneConfig, TaskRunConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import LoggingConfig, MeshConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import OptimizerConfig
from bert_jax.finetuning import finetune as finetune_module
from bert_jax.finetuning.contrast import objective_of
from bert_jax.finetuning.finetune import DevRows, FineTuningPlan, _initial_parameters, finetune, plan_finetuning
from bert_jax.model.bert import init as init_parameters
from bert_jax.model.kernels import attention_form
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.initial import with_spelling
from bert_jax.products.suite.processes import Processes
from bert_jax.run import trained_model
from bert_jax.run.checkpoint import write_model
from bert_jax.run.checkpoint_choice import chosen_checkpoint
from bert_jax.run.checkpoint_manifest import Manifest, checkpoint_path, complete
from bert_jax.run.metrics import read_metrics
from bert_jax.run.recorded_config import write_config
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.run.trained_model import Provenance, TrainedModel
from bert_jax.system.errors import Interrupted, UsageError
from bert_jax.training.loop import Trained
from bert_jax.training.optimizer import decays
from bert_jax.training.trainer import Trainer

THINGS = {"animal": ["cat", "dog"], "water": ["river", "stone"]}


def written(path, count: int, seed: int):
    """`count` rows, a text and its class."""
    rng = random.Random(seed)
    lines = ["sentence\tlabel"]
    for _ in range(count):
        label = rng.choice(list(THINGS))
        # Three words tell the class: with one, the task is learned from some seeds only.
        first, second, third = rng.choices(THINGS[label], k=3)
        lines.append(f"The {rng.choice(['old', 'green'])} {first} sees the {second} near {third}.\t{label}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def config_file(config: FinetuneConfig, folder: Path) -> str:
    """`config` as a config file."""
    values = config.model_dump(mode="json")
    file = folder / "task.py"
    file.write_text(f"from bert_jax.config.finetune import FinetuneConfig\n\nconfig = FinetuneConfig(**{values!r})\n")
    return str(file)


@contextlib.contextmanager
def changed(path: Path, before: bytes, after: bytes) -> Iterator[None]:
    """Within the block the file has `after` in place of `before`."""
    kept = path.read_bytes()
    path.write_bytes(kept.replace(before, after))
    try:
        yield
    finally:
        path.write_bytes(kept)


@pytest.fixture(scope="module")
def config(tiny_run, tmp_path_factory) -> FinetuneConfig:
    folder = tmp_path_factory.mktemp("rows")
    return FinetuneConfig(
        task=TaskConfig(
            name="things",
            kind="class",
            train=written(folder / "train.tsv", 64, 0),
            dev=written(folder / "dev.tsv", 20, 1),
            max_length=32,
            batch_size=16,
            epochs=16.0,
        ),
        init=str(tiny_run.path),
        optimizer=OptimizerConfig(peak_learning_rate=1e-3, warmup=0.1),
        evaluations=0.25,
        logging=LoggingConfig(every=4, tensorboard=False),
    )


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory) -> RunDirectory:
    """`config`, trained to its end. Not to be changed."""
    run = RunDirectory(tmp_path_factory.mktemp("finetuned") / "run")
    finetune(config, run)
    return run


@pytest.fixture
def evaluations(monkeypatch) -> list[int]:
    """The numbers of the evaluations of dev rows so far, the second of which is interrupted."""
    evaluate, numbers = DevRows.evaluate, []

    def stopped_at_the_second(self, *given):
        numbers.append(len(numbers) + 1)
        if len(numbers) == 2:
            raise Interrupted("here")
        return evaluate(self, *given)

    monkeypatch.setattr(DevRows, "evaluate", stopped_at_the_second)
    return numbers


def test_a_task_is_learned_and_measured(finished, config):
    results = json.loads(finished.results_file.read_text())
    assert results["task"] == "things" and results["metric"] == "accuracy" and results["score"] == 1.0
    assert results["steps"] == 64 and results["seeds"] == [0]
    assert (results["training_rows"], results["dev_rows"]) == (64, 20)
    assert sum(sum(row.values()) for row in results["confusion"].values()) == 20
    assert results["constant_prediction"] is None
    labels = [line.split("\t")[1] for line in Path(config.task.dev).read_text().splitlines()[1:]]
    assert results["baseline"]["accuracy"] == max(map(labels.count, labels)) / 20
    assert "confusion" not in results["baseline"]
    planned = RunFiles(finished.path).config
    assert isinstance(planned, TaskRunConfig) and planned.task.labels == ("animal", "water")
    lines = read_metrics(finished.metrics_file)
    assert [line["step"] for line in lines if line["split"] == "eval"] == [16, 32, 48, 64]
    losses = [line["loss"] for line in lines if line["split"] == "train"]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.long
def test_other_dev_rows_are_measured_and_choose_nothing(config, tmp_path, monkeypatch):
    swapped = {"animal": "water", "water": "animal"}
    rows = Path(config.task.dev).read_text()
    (tmp_path / "turned.tsv").write_text(re.sub("animal|water", lambda label: swapped[label[0]], rows))
    others = (f"turned={tmp_path / 'turned.tsv'}", f"same={config.task.dev}")
    run, read, load = RunDirectory(tmp_path / "run"), [], trained_model.load_parameters
    monkeypatch.setattr(trained_model, "load_parameters", lambda path, shapes: read.append(path) or load(path, shapes))
    results = finetune(config.replace(task=config.task.replace(other_dev=others, epochs=1.0)), run).content
    [best] = [path for path in read if path.is_relative_to(run.path)]  # read once for all sets
    assert int(best.name) == results["best_step"]
    assert results["same/accuracy"] == results["accuracy"] == results["score"]
    assert results["turned/accuracy"] == pytest.approx(1 - results["accuracy"])
    assert results["baseline"]["same/accuracy"] == results["baseline"]["accuracy"]


def test_a_metric_that_other_dev_rows_do_not_have_is_refused_before_training(config, tmp_path):
    pairs, scored = tmp_path / "pairs.jsonl", tmp_path / "scored.jsonl"
    rows = [{"sentence1": f"the {word}", "sentence2": f"a {word}"} for word in ("old", "quiet", "small")]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scored.write_text("".join(json.dumps(row | {"label": number}) + "\n" for number, row in enumerate(rows)))
    task = TaskConfig(
        name="x",
        kind="vectors",
        texts=("sentence1", "sentence2"),
        train=str(pairs),
        dev=str(pairs),
        other_dev=(f"sts={scored}",),
        metric="ndcg@10",
        batch_size=2,
        max_length=16,
    )
    with pytest.raises(UsageError, match="--task.metric=ndcg@10 can't be measured, as the dev pairs have scores"):
        plan_finetuning(config.replace(task=task), RunDirectory(tmp_path / "run"))


@pytest.mark.parametrize("steps, planned", [((8,), "bfloat16"), ((0,), "auto")], ids=["run", "imported"])
def test_the_compute_type_is_that_of_the_run_or_auto_for_an_imported_model(
    config, tiny_run, tmp_path, monkeypatch, steps, planned
):
    """An imported model is one checkpoint at step 0."""
    model, run = TrainedModel.open(tiny_run.path), RunDirectory(tmp_path / "run")
    half_precision = model.config.replace(compute_dtype="bfloat16")
    half = model._replace(config=half_precision, provenance=Provenance(steps=steps))
    monkeypatch.setattr(finetune_module, "open_model", lambda config: half)
    assert plan_finetuning(config, run).config.model.compute_dtype == planned
    asked = config.replace(compute_dtype="float32")
    assert plan_finetuning(asked, run).config.model.compute_dtype == "float32"


def test_another_saved_step_and_an_average_are_measured_and_named(finished, capsys):
    saved = [int(path.name) for path in complete(finished.checkpoints)]
    first, last = Manifest.at(checkpoint_path(finished.checkpoints, saved[0])).evaluation, saved[-2:]
    for asked, expected, told in (
        (["--step", saved[0]], {"steps": saved[0], "averaged_steps": None}, f"step {saved[0]}"),
        (["--average", 2], {"steps": last[1], "averaged_steps": last}, f"mean of steps {last[0]}, {last[1]}"),
    ):
        line = ["evaluate", str(finished.path), *map(str, asked)]
        assert bert_jax_command([*line, "--json"]) == 0
        results = json.loads(capsys.readouterr().out)
        assert {name: results.get(name) for name in expected} == expected
        assert "--average" in line or results["score"] == pytest.approx(first["score"])
        assert bert_jax_command(line) == 0
        assert capsys.readouterr().out.startswith(f"things, 20 dev rows, {told}\n")


def test_a_finished_run_is_not_trained_again(finished, config, monkeypatch):
    monkeypatch.setattr(finetune_module, "Trainer", None)
    assert finetune(config, finished).score == 1.0


def test_other_rows_settings_or_a_pretrained_run_are_another_run(finished, tiny_run, config, tmp_path):
    other = config.replace(task=config.task.replace(train=written(tmp_path / "train.tsv", 64, 5)))
    for settings, run, words in (
        (config, tiny_run, "is a run that was pretrained; choose another --workdir"),
        (other, finished, "is another run: the rows of its files or sets have changed"),
        (config.replace(layers_frozen=1), finished, "is another run: .*--layers-frozen is null there and 1 now"),
    ):
        with pytest.raises(UsageError, match=words):
            finetune(settings, run)
    with changed(Path(config.task.dev), b"animal", b"water"), pytest.raises(UsageError, match="have changed"):
        finetune(config, finished)


@pytest.mark.long
def test_going_on_gives_what_was_not_interrupted(config, finished, tmp_path, evaluations):
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(Interrupted):
        finetune(config, run)
    assert run.newest_step == 16
    results = finetune(config, run).content
    whole, parts = (parameters(checkpoint_path(each.checkpoints, 64)) for each in (finished, run))
    assert whole == parts
    assert len(evaluations) == 5 and results == json.loads(finished.results_file.read_text())
    run.results_file.unlink()  # the best checkpoint is measured again
    assert finetune(config, run).content == results and len(evaluations) == 6


def test_predictions_from_python_and_from_the_command(finished, config, tmp_path, capsys):
    bert = bert_jax.load(finished.path)
    rows = ["The old cat sees the dog near dog.", {"sentence": "The green river sees the stone near stone."}]
    assert [one["predicted_label"] for one in bert.predict(rows)] == ["animal", "water"]
    assert bert.encode(["The cat."]).pooled.shape == (1, 32)
    assert bert_jax_command(["predict", str(finished.path), config.task.train, str(tmp_path / "out.tsv")]) == 0
    header, *rows = (line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines())
    assert header == ["sentence", "label", "predicted_label", "probability_animal", "probability_water"]
    assert len(rows) == 64 and all(row[1] == row[2] for row in rows)
    assert "64 rows with predictions" in capsys.readouterr().err


def test_what_can_not_be_predicted_is_refused_in_one_line(finished, tiny_run, config, tmp_path, capsys):
    output = tmp_path / "out.jsonl"
    other = tmp_path / "other.tsv"
    other.write_text("text\nThe cat.\n")
    (ragged := tmp_path / "ragged.tsv").write_text("sentence\nThe\tcat.\n")
    for arguments, said in (
        ([tiny_run.path, config.task.dev, output], "has no head for a task"),
        ([finished.path, other, output], "other.tsv, line 2 has no column 'sentence'"),
        ([finished.path, ragged, output], "by --task.columns, or say by --task.separator what is"),
        ([finished.path, other, tmp_path / ".." / tmp_path.name / "other.tsv"], "is the input"),
    ):
        assert bert_jax_command(["predict", *map(str, arguments)]) == 2
        assert said in capsys.readouterr().err
    assert not output.exists()
    with pytest.raises(UsageError, match="predict takes a list of rows and got the text"):
        bert_jax.load(finished.path).predict("The old cat.")
    with pytest.raises(UsageError, match="the model has no masked-language head"):
        bert_jax.load(finished.path).fill_mask("The [MASK].")


def test_plain_lines_are_predicted(finished, tmp_path, capsys, monkeypatch):
    lines, output = tmp_path / "lines.txt", tmp_path / "said.jsonl"
    texts = ["The old cat sees the dog near cat.", "", "The old stone sees the river near stone."]
    lines.write_text("\n".join(texts) + "\n")
    assert bert_jax_command(["predict", str(finished.path), str(lines), str(output)]) == 0
    assert f"{lines}: each line is a sentence (for a file with columns, add --format tsv)" in capsys.readouterr().err
    said = [json.loads(line) for line in output.read_text().splitlines()]
    assert [one["sentence"] for one in said] == texts
    assert [said[0]["predicted_label"], said[2]["predicted_label"]] == ["animal", "water"]
    table = tmp_path / "table.txt"
    table.write_text("id\tsentence\n7\tThe old cat sees.\n")
    assert bert_jax_command(["predict", str(finished.path), str(table), str(output)]) == 0
    assert json.loads(output.read_text())["id"] == "7" and "each line" not in capsys.readouterr().err
    monkeypatch.setattr("bert_jax.finetuning.rows_to_predict.STANDARD_INPUT", str(lines))
    assert bert_jax_command(["predict", str(finished.path), "-", str(output)]) == 0
    assert len(output.read_text().splitlines()) == 3
    assert bert_jax_command(["predict", str(finished.path), str(table), str(output), "--format", "text"]) == 0
    assert json.loads(output.read_text().splitlines()[0])["sentence"] == "id\tsentence"


def test_it_is_measured_again_on_dev_rows_and_on_others(finished, config, tmp_path, capsys):
    results = json.loads(finished.results_file.read_text())
    again = bert_jax.load(finished.path).predictor.measure().content
    assert again == {name: results[name] for name in again}
    (tmp_path / "test.tsv").write_text("sentence\tlabel\nThe old cat sees.\tanimal\nThe old cat sees.\twater\n")
    assert bert_jax_command(["evaluate", str(finished.path), "--data", str(tmp_path / "test.tsv")]) == 0
    shown = capsys.readouterr().out
    assert "2 rows of" in shown.replace("\n", " ") and "0.5000" in shown
    assert bert_jax_command(["evaluate", str(finished.path), "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == again and "other rows" not in shown.err
    (tmp_path / "bare").write_text("animal,The old cat sees.\nwater,The old cat sees.\n")
    bare = ["evaluate", str(finished.path), "--data", str(tmp_path / "bare"), "--columns", "label", "sentence"]
    assert bert_jax_command([*bare, "--format", "csv"]) == 0
    assert "0.5000" in capsys.readouterr().out
    assert bert_jax_command(["evaluate", str(finished.path), "--format", "csv"]) == 2
    assert "--format, --separator and --columns are those of rows" in capsys.readouterr().err
    assert bert_jax_command(["evaluate", str(finished.path), "--data", "none.tsv"]) == 2
    assert bert_jax_command(["evaluate", str(finished.path), "--language", "de", "--data", "x.tsv"]) == 2
    assert "leave it out" in capsys.readouterr().err


def test_dev_rows_that_have_changed_are_told(finished, config, capsys):
    dev = Path(config.task.dev)
    with changed(dev, b"near", b"beside"):
        assert bert_jax_command(["evaluate", str(finished.path)]) == 0
    assert f"WARNING: {dev} has other rows now" in " ".join(capsys.readouterr().err.split())


@pytest.mark.long
def test_a_probe_trains_the_head_alone_and_tells_of_a_pooler_that_nothing_trained(tiny_run, config, tmp_path, capsys):
    pretrained, run = tmp_path / "without_pairs", RunDirectory(tmp_path / "run")
    alone = RunFiles(tiny_run.path).config
    write_config(tmp_path / "config.json", alone.replace(objective=alone.objective.replace(pair="none")))
    before = bert_jax.load(tiny_run.path).params
    before["bert"]["pooler"]["dense"]["bias"] *= 0  # as it began
    carried = tmp_path / "config.json", tiny_run.tokenizer_directory
    write_model(pretrained / "checkpoints", before, carried)
    finetune(config.replace(init=str(pretrained), probe=True, task=config.task.replace(epochs=1.0)), run)
    said = " ".join(capsys.readouterr().err.split())
    assert "without sentence pairs, so the pooler, on which the head stands, was never trained" in said
    assert "which --probe leaves as they are" in said
    after = bert_jax.load(run.path).params
    jax.tree.map(np.testing.assert_array_equal, before["bert"], after["bert"])
    assert np.abs(after["task"]["dense"]["bias"]).max() > 0
    assert RunFiles(run.path).config.model.dropout == 0.0


@pytest.mark.long
def test_a_mix_of_layers_is_learned_shown_and_read_again(config, tmp_path, capsys):
    mixing, path = config.replace(task=config.task.replace(epochs=1.0, mix_layers=True)), tmp_path / "run"
    assert bert_jax_command(["finetune", config_file(mixing, tmp_path), "--workdir", str(path)]) == 0
    results = json.loads((path / "results.json").read_text())
    weights, gamma = results["layer_weights"], results["gamma"]
    assert len(weights) == RunFiles(path).config.model.num_layers + 1 and sum(weights) == pytest.approx(1)
    assert np.ptp(weights) > 1e-4 and gamma != 1.0
    shown = " ".join(f"{weight:.3f}" for weight in weights)
    assert f"weights of the embeddings and of each layer: {shown}; gamma {gamma:.3f}" in capsys.readouterr().out
    assert bert_jax_command(["evaluate", str(path), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert (measured["score"], measured["errors"]) == (results["score"], results["errors"])
    loaded, texts = bert_jax.load(path), ["The old cat sees the dog near dog."]
    before = loaded.predict(texts)
    loaded.params["task"]["mix"] = loaded.params["task"]["mix"][::-1] + jax.numpy.arange(len(weights))
    assert loaded.predict(texts) != before
    assert bert_jax_command(["export", str(path), str(tmp_path / "model")]) == 2
    refused = " ".join(capsys.readouterr().err.split())
    assert "no class with the head of task things (--task.kind=class, --task.mix-layers); use the run" in refused
    assert not (tmp_path / "model").exists()


class Elsewhere:
    """An array of which other hosts hold parts."""

    def __array__(self):
        raise RuntimeError("spans non-addressable devices")


def test_of_the_head_a_mix_alone_is_fetched_and_without_dev_rows_and_a_mix_no_checkpoint_is_opened(
    config, tmp_path, monkeypatch
):
    head = {"mix": np.zeros(3, np.float32), "gamma": np.ones(1, np.float32), "dense": Elsewhere()}
    opened = []
    best = SimpleNamespace(shapes={}, read=lambda shardings: {"task": head})
    monkeypatch.setattr(TrainedModel, "open", lambda path: opened.append(path) or best)
    trained = Mock(Trained, state=SimpleNamespace(step=4, skipped=0))
    for mixed in (False, True):
        task = config.task.replace(mix_layers=mixed)
        settings = SimpleNamespace(task=task, seed=0, steps=4)
        plan = Mock(FineTuningPlan, config=settings, learned=SimpleNamespace(rows=8), mesh=make_mesh(MeshConfig()))
        results = finetune_module._results(plan, RunDirectory(tmp_path), None, {}, trained)
        assert len(opened) == mixed and results.layer_weights == [pytest.approx(1 / 3)] * 3 * mixed
        assert results.training_rows == 8 and results.gamma == (1.0 if mixed else None)


@pytest.mark.long
def test_several_seeds_are_a_suite_with_a_mean_a_spread_and_what_learned_nothing(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Processes, "call", lambda processes, function, *arguments, log=None: function(*arguments))
    task = config.task.replace(epochs=0.25)
    idle = config.replace(task=task, optimizer=OptimizerConfig(peak_learning_rate=1e-12), evaluations=4.0)
    suite, line = tmp_path / "suite", ["finetune", config_file(idle, tmp_path), "--workdir"]
    assert bert_jax_command([*line, str(suite), "--seeds", "2"]) == 0
    results = json.loads((suite / "results.json").read_text())
    runs = {path: json.loads((path / "results.json").read_text()) for path in (suite / "runs").iterdir()}
    scores = [run["score"] for run in runs.values()]
    assert results["seeds"] == [0, 1] and results["score"] == results["accuracy"] == pytest.approx(np.mean(scores))
    assert results["task"] == config.task.name and results["metric"] == "accuracy"
    assert runs[Path(results["run"])]["score"] == max(scores)
    (cell,) = json.loads((suite / "suite.json").read_text())["table"]
    assert cell["spread"] == pytest.approx(np.std(scores, ddof=1)) and cell["mean"] == pytest.approx(np.mean(scores))
    said = " ".join(capsys.readouterr().out.split())
    assert "for every row: little or nothing was learned from the texts" in said and "bert-jax predict" in said
    assert f"± {cell['spread']:.3f}" in (suite / "report.html").read_text()
    assert len(bert_jax.load(results["run"]).predict(["The old cat sees the dog near dog."])) == 1
    with pytest.raises(UsageError, match="there are the runs .* in it .results.json names the best"):
        bert_jax.load(suite)
    assert bert_jax_command([*line, str(suite)]) == 2
    assert "is no run and not empty" in capsys.readouterr().err
    assert bert_jax_command([*line, results["run"], "--seeds", "2"]) == 2
    assert "is no suite's folder and not empty" in capsys.readouterr().err
    assert bert_jax_command([*line, str(tmp_path / "none"), "--seeds", "2", "--task.train", "absent.tsv"]) == 2
    assert "absent.tsv can't be read" in capsys.readouterr().err and not (tmp_path / "none").exists()


def scored(scores):
    """DevRows whose scores are these, one evaluation after the other."""
    left = iter(scores)

    class Scored(finetune_module.DevRows):
        def evaluate(self, params, stop=None):
            if stop is None:  # the best checkpoint, after training
                return super().evaluate(params)
            score = next(left)
            return Results.model_validate({"metric": "accuracy", "accuracy": score, "score": score})

    return Scored


@pytest.mark.long
def test_training_ends_where_no_score_has_become_better(config, tmp_path, monkeypatch, capsys):
    patient = config.replace(task=config.task.replace(patience=2), evaluations=1.0)
    whole, parts = (RunDirectory(tmp_path / name) for name in ("whole", "parts"))
    with monkeypatch.context() as patched:
        patched.setattr(finetune_module, "DevRows", scored([0.5, 0.75, 0.75, 0.25]))
        results = finetune(patient, whole).content
    assert (results["steps"], results["planned_steps"], results["stopped_early"]) == (16, 64, True)
    assert results["best_step"] == 8 and whole.newest_step == 16
    assert int(chosen_checkpoint(RunFiles(whole.path)).path.name) == 8  # with the best score, and the first of these
    said = " ".join(capsys.readouterr().err.split())
    assert "step 8, held out: accuracy 0.7500" in said
    assert "training ends at step 16 of 64: in 2 evaluations no accuracy was better than 0.7500, of step 8" in said
    assert finetune(patient, whole).content == results and "is finished: 16 steps" in capsys.readouterr().err
    whole.results_file.unlink()  # a run whose results were not written trains no further
    again = finetune(patient, whole).content
    assert (again["best_step"], again["steps"], whole.newest_step) == (8, 16, 16)
    for scores in ([0.5, 0.75, 0.75], [0.25]):  # one that goes on ends where it would have ended
        with monkeypatch.context() as patched, contextlib.suppress(StopIteration, RuntimeError):
            patched.setattr(finetune_module, "DevRows", scored(scores))
            finetune(patient, parts)
    first, second = (parameters(checkpoint_path(run.checkpoints, 16)) for run in (whole, parts))
    assert first == second


def test_settings_that_do_not_fit_are_refused_before_anything_is_written(config, tmp_path):
    run, other = RunDirectory(tmp_path / "run"), tmp_path / "other.tsv"
    other.write_text("text\tlabel\nThe cat.\tanimal\n")
    for changes, said in (
        ({"init": None}, "init is not set: give the model"),
        ({"init": str(tmp_path / "none")}, "there is nothing at"),
        ({"task": config.task.replace(patience=2, dev=None)}, "--task.patience=2 compares scores"),
        ({"layers_frozen": 3}, "layers-frozen=3 and the model .* has 2 layers"),
        ({"task": config.task.replace(label="class")}, "has no column 'class'"),
        ({"task": config.task.replace(dev=str(other))}, "other.tsv, line 2 has no column 'sentence'"),
    ):
        with pytest.raises(UsageError, match=said):
            finetune(config.replace(**changes), run)
    assert not run.path.exists()


def test_attention_is_checked_for_the_settings_of_the_task(config, tmp_path, monkeypatch):
    """Not for those of the model that it starts from, which has dropout and computes in float32."""
    monkeypatch.setattr(attention_form, "platform", lambda: "gpu")
    by_kernel = config.execution.replace(attention="gpu")
    asked = config.replace(execution=by_kernel, compute_dtype="bfloat16")
    run = RunDirectory(tmp_path / "run")
    plan_finetuning(asked, run)
    with pytest.raises(UsageError, match="attention=gpu can't be used: activations are float32"):
        plan_finetuning(asked.replace(compute_dtype="float32"), run)


def test_random_parameters_keep_the_spelling_of_the_vocabulary(config, tiny_run, tmp_path):
    pretrained = RunFiles(tiny_run.path).config
    model = pretrained.model.replace(
        layer="lstm", positions="none", num_segments=0, hidden_size=8, feedforward_size=8, character_filters=(4,)
    )
    objective = pretrained.objective.replace(predict="both", pair="none")
    write_config(tmp_path / "config.json", pretrained.replace(model=model, objective=objective))
    tokenizer = bert_jax.load_tokenizer(tiny_run.tokenizer_directory)
    sized = model.replace(vocabulary_size=len(tokenizer.vocabulary))
    params = with_spelling(init_parameters(sized, jax.random.key(0)), sized, tokenizer)
    write_model(tmp_path / "init" / "checkpoints", params, (tmp_path / "config.json", tiny_run.tokenizer_directory))
    random = config.replace(from_random=True, init=str(tmp_path / "init"))
    plan = plan_finetuning(random, RunDirectory(tmp_path / "run"))
    trainer = Trainer(plan.config, plan.mesh, objective_of(plan.config))
    numbers = trainer.initial_state(_initial_parameters(plan)).params["bert"]["spelling"]["numbers"]
    assert np.array_equal(numbers, params["bert"]["spelling"]["numbers"]) and numbers.any()
    assert not decays(params)["bert"]["spelling"]["numbers"]  # nor has it a gradient


@pytest.mark.long
def test_a_share_of_the_training_rows_is_measured_on(config, tmp_path, capsys):
    """It is shown, a row of it is in no batch, and `evaluate` reads the same rows again."""
    short = config.replace(task=config.task.replace(epochs=1.0, dev="25%"))
    file, run = config_file(short, tmp_path), tmp_path / "run"
    assert bert_jax_command(["finetune", file, "--workdir", str(run)]) == 0
    shown = capsys.readouterr()
    results = json.loads((run / "results.json").read_text())
    assert results["training_rows"] + results["dev_rows"] == 64 and 12 <= results["dev_rows"] <= 20
    rows = f"train {results['training_rows']}, dev {results['dev_rows']} (--task.dev 25%)"
    assert rows in shown.err.replace("\n", " ") and "in both sets" in shown.err
    assert bert_jax_command(["evaluate", str(run), "--json"]) == 0
    again = capsys.readouterr()
    assert json.loads(again.out.splitlines()[-1])["accuracy"] == results["score"]
    assert "other rows now" not in again.err
    assert bert_jax_command(["evaluate", str(run), "--data", "30%"]) == 2
    assert "30% is a share of rows that the model was trained on" in capsys.readouterr().err
    assert bert_jax_command(["report", str(run)]) == 0
    assert f"25% of {config.task.train}" in (run / "report.html").read_text()


@pytest.mark.long
def test_without_dev_rows_nothing_is_measured_and_sequences_are_shortened_to_the_models_positions(
    config, tmp_path, capsys
):
    task, run = config.task.replace(epochs=1.0, dev=None, max_length=64), tmp_path / "run"
    file = config_file(config.replace(task=task, from_random=True), tmp_path)
    assert bert_jax_command(["finetune", file, "--workdir", str(run), "--seed", "3"]) == 0
    shown = capsys.readouterr()
    assert "--task.dev names no rows to measure on" in shown.out and f"bert-jax predict {run}" in shown.out
    assert "the model has 32 positions: sequences have 32 pieces at most (--task.max-length=64)\n" in shown.err
    assert RunFiles(run).config.task.max_length == 32
    assert bert_jax.load(run).predict(["The old cat sees the house. " * 9])
    assert json.loads((run / "results.json").read_text())["seeds"] == [3]
    assert bert_jax_command(["finetune", file, "--workdir", str(tmp_path / "more"), "--seeds", "2"]) == 2
    assert "--seeds compares scores" in capsys.readouterr().err


@pytest.mark.long
def test_in_a_bucket_it_learns_and_says_what_it_does_on_disk(config, tiny_run, bucket_server, bucket, tmp_path, capsys):
    short, rows_folder = config.replace(task=config.task.replace(epochs=1.0)), Path(config.task.train).parent
    for folder, top in (("init", tiny_run.path), ("rows", rows_folder)):
        for file in filter(Path.is_file, top.rglob("*")):
            bucket_server.put(f"{bucket}/{folder}/{file.relative_to(top)}".removeprefix("gs://"), file.read_bytes())
    here, there = RunDirectory(tmp_path / "run"), RunDirectory(f"{bucket}/run")
    finetune(short, here)
    rows = {name: f"{bucket}/rows/{name}.tsv" for name in ("train", "dev")}
    finetune(short.replace(init=f"{bucket}/init", task=short.task.replace(**rows)), there)
    assert json.loads(there.results_file.read_text()) == json.loads(here.results_file.read_text())

    for command, flags, name in (
        ("predict", [], "said.jsonl"),
        ("features", ["--texts", "sentence", "--pool", "mean"], "vectors.npz"),
    ):
        near = str(here.path), config.task.dev, str(tmp_path / name)
        far = f"{bucket}/run", rows["dev"], f"{bucket}/{name}"
        for places in (near, far):
            assert bert_jax_command([command, *places, *flags]) == 0, capsys.readouterr().err
        assert bucket_server.objects[f"{bucket}/{name}".removeprefix("gs://")].data == (tmp_path / name).read_bytes()


@pytest.mark.parametrize(
    "settings, learned",
    [
        (None, "pooler"),  # imported with both
        (RunConfig(), "pooler"),
        (RunConfig(init="some"), "pooler"),
        (RunConfig(objective=ObjectiveConfig(pair="none")), "head"),
        (RunConfig(objective=ObjectiveConfig(pair="none"), init="some"), "head"),
    ],
    ids=["imported", "pairs", "pairs, begun from a model", "no pairs", "no pairs, begun from a model"],
)
def test_the_layer_before_the_vocabulary_is_the_pooler_where_that_learned_nothing(settings, learned):
    pooler, head = ({"dense": {"bias": np.full(2, value)}, "norm": np.full(2, value)} for value in (2.0, 3.0))
    started = SimpleNamespace(provenance=Provenance(settings))
    started.with_parameters = lambda _: (started, {"bert": {"pooler": pooler}, "masked_lm": head | {"bias": None}})
    task = TaskConfig(name="stars", kind="class", texts=("text",), label="stars", labels=("0", "1"))
    config = SimpleNamespace(model=ModelConfig.modern(), task=task, from_random=False, probe=False)
    begun = _initial_parameters(Mock(spec=FineTuningPlan, config=config, started=started, mesh=None))
    assert begun["bert"]["pooler"]["dense"]["bias"][0] == {"pooler": 2.0, "head": 3.0}[learned]
