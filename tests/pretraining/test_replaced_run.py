"""A whole run of ELECTRA's pretraining, and all that is done with one."""

import json
import shutil

import jax
import numpy as np
import pytest
from conftest import command as process_of
from conftest import faked_devices

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase
from bert_jax.model.parameters import path_of
from bert_jax.pretraining.evaluation import evaluate_run
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.metrics import read_metrics
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import UsageError

pytestmark = pytest.mark.long

STEPS = 24
ASKED = ObjectiveConfig(predict="replaced", pair="none")


def leaves(tree):
    return {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.fixture(scope="module")
def config(tiny_config) -> RunConfig:
    model = {"model_type": "electra", "num_heads": 4, "discriminator": True, "generator_divisor": 2}
    model["activation"] = "gelu_erf"  # that of the generator's head in transformers

    model |= {"embedding_size": 20}
    return tiny_config.replace(
        model=tiny_config.model.replace(**model),
        objective=ASKED,
        optimizer=tiny_config.optimizer.replace(peak_learning_rate=1e-2, bias_correction=True),
        phases=(Phase(steps=STEPS, length=32, batch_size=16),),
        evaluation=tiny_config.evaluation.replace(every=STEPS // 2),
        checkpoints=tiny_config.checkpoints.replace(every=STEPS // 2),
    )


@pytest.fixture(scope="module")
def run(config, tmp_path_factory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("replaced") / "run")
    pretrain(config, run)
    return run


def test_a_run_learns_and_shows_the_baseline(run, tmp_path, capsys):
    results, lines = json.loads(run.results_file.read_text()), read_metrics(run.path / "metrics.jsonl")
    assert results["metric"] == "rtd_accuracy" and results["score"] == results["rtd_accuracy"]
    assert results["loss"] == pytest.approx(results["mlm_loss"] + 50 * results["rtd_loss"])
    trained = [line for line in lines if line["split"] == "train"]
    assert all(line["loss"] == pytest.approx(line["mlm_loss"] + 50 * line["rtd_loss"], rel=0.02) for line in trained)
    losses = [line["loss"] for line in trained]
    assert losses[-1] < losses[0] - 5 and results["mlm_loss"] < np.log(150)
    share = results["rtd_replaced"]
    assert results["baseline"]["rtd_accuracy"] == 1 - share and 0.05 < share < 0.16
    assert results["baseline"]["rtd_loss"] == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share))
    again = evaluate_run(run).content
    assert {name: again[name] for name in ("loss", "rtd_replaced")} == {
        name: results[name] for name in ("loss", "rtd_replaced")
    }
    shutil.copytree(run.path, tmp_path / "copy")
    assert command(["pretrain", str(run.path), "--workdir", str(tmp_path / "copy")]) == 0
    shown = capsys.readouterr().out
    assert "RTD accuracy" in shown and "always an original" in shown and ".tokens.shape" in shown


def test_a_run_is_the_same_on_a_mesh(run, config, tmp_path):
    values = config.replace(checkpoints=config.checkpoints.replace(every=STEPS)).model_dump(mode="json")
    config_file = tmp_path / "config.py"
    config_file.write_text(f"from bert_jax.config.run import RunConfig\n\nconfig = RunConfig(**{values!r})\n")
    (tmp_path / "run").mkdir()
    for name in ("tokenizer", "data"):
        (tmp_path / "run" / name).symlink_to(run.path / name)
    mesh = ["--mesh.data", 2, "--mesh.fsdp", 2, "--mesh.tensor", 2]
    process = process_of("pretrain", config_file, "--workdir", tmp_path / "run", *mesh, **faked_devices(8))
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    expected, found = (read_metrics(path / "metrics.jsonl") for path in (run.path, tmp_path / "run"))
    for name in ("loss", "rtd_replaced"):  # the same tokens are drawn
        assert [line[name] for line in found] == pytest.approx([line[name] for line in expected], rel=1e-4)


def test_the_generator_fills_masks_and_the_discriminator_encodes(run):
    bert = bert_jax.load(run.path)
    assert bert.generator.config == bert.config.generator and bert.generator.config.hidden_size == 16
    fills = bert.fill_mask("The old [MASK].", top=3)
    assert fills == bert.generator.fill_mask("The old [MASK].", top=3) and len(fills[0]) == 3
    vectors = bert.encode(["The old cat"])
    assert vectors.tokens.shape[2] == 32 and vectors.pooled is None
    [feature] = bert.features(["The old cat"])
    assert feature.vectors.shape == (len(feature.pieces), 64)


def test_it_is_continued_and_exported_and_read_again(run, config, tmp_path, capsys):
    started = config.replace(init=str(run.path), phases=(Phase(steps=1, length=32, batch_size=8),), seed=1)
    pretrain(started, RunDirectory(tmp_path / "more"))
    assert "random values" not in capsys.readouterr().err
    assert command(["export", str(run.path), str(tmp_path / "out")]) == 0
    trained = jax.device_get(bert_jax.load(run.path))
    kinds = []
    for folder, params in (("out", trained.params), ("out/generator", trained.generator.params)):
        kinds += json.loads((tmp_path / folder / "config.json").read_text())["architectures"]
        assert command(["import", str(tmp_path / folder), str(tmp_path / "back")]) == 0
        back = leaves(bert_jax.load(tmp_path / "back").params)
        assert back.keys() == {path for path in leaves(params) if not path.startswith("generator/")}
        assert all(np.array_equal(leaf, leaves(params)[path]) for path, leaf in back.items())
        if folder == "out":
            with pytest.raises(UsageError, match="without a generator.* can't be trained or measured on text"):
                evaluate_run(RunDirectory(tmp_path / "back"))
            with pytest.raises(UsageError, match="a discriminator without its generator, .* the folder `generator`"):
                bert_jax.load(tmp_path / "back").fill_mask("The [MASK].")
        shutil.rmtree(tmp_path / "back")
    assert kinds == ["ElectraForPreTraining", "ElectraForMaskedLM"]
    for card in ("out/README.md", "out/generator/README.md"):
        text = (tmp_path / card).read_text()
        assert "for a discriminator which pieces the generator replaced\n" in text
        assert "| the generator's masked-language accuracy |" in text and "| replaced-token accuracy |" in text
    capsys.readouterr()
    pretrain(started.replace(init=str(tmp_path / "out")), RunDirectory(tmp_path / "from_published"))
    assert "the model to start from has no generator: random values" in capsys.readouterr().err
