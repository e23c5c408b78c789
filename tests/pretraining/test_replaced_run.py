"""Whole runs of ELECTRA's and of DeBERTa-v3's pretraining, and all that is done with them."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stages import parameters

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.operation import MeshConfig
from bert_jax.interchange.export import write_model_directory
from bert_jax.layout import TokenSequence, lay_out_sequences
from bert_jax.model.bert import BertForPretraining, generator_parameters
from bert_jax.model.parameters import path_of
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.evaluation import evaluate_run
from bert_jax.pretraining.initial import initial_parameters, open_initial
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.metrics import read_metrics
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import save_model
from bert_jax.system.errors import UsageError

pytestmark = pytest.mark.long

STEPS = 24
ASKED = {"predict": "replaced", "pair": "none"}
OF_ELECTRA = {
    "model_type": "electra",
    "num_heads": 4,
    "embedding_size": 20,
    "activation": "gelu_erf",  # that of the generator's head in transformers
    "discriminator": True,
    "generator_divisor": 2,
}
OF_DEBERTA = {
    "model_type": "deberta-v2",
    "positions": "disentangled",
    "distance_buckets": 8,
    "clamped_distance": 32,
    "num_segments": 0,
    "num_heads": 4,
    "pooler": "gelu",
    "activation": "gelu_erf",
    "layer_norm_epsilon": 1e-7,
    "discriminator": True,
    "discriminator_head": "product",
    "generator_divisor": 1,
    "generator_layers": 1,
    "shared_embeddings": "disentangled",
    "mask_decoder": True,
}


@pytest.fixture(scope="module")
def electra_config(tiny_config):
    changed = tiny_config.change(
        model=OF_ELECTRA,
        objective=ASKED,
        optimizer={"peak_learning_rate": 1e-2, "bias_correction": True},
        evaluation={"every": STEPS // 2},
        checkpoints={"every": STEPS // 2},
    )
    return changed.replace(phases=(changed.phases[0].replace(steps=STEPS, batch_size=16),))


@pytest.fixture(scope="module")
def deberta_config(tiny_config):
    return tiny_config.change(model=OF_DEBERTA, objective=ASKED, checkpoints={"every": 6})


@pytest.fixture(scope="module")
def electra(electra_config, tmp_path_factory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("electra") / "run")
    pretrain(electra_config, run)
    return run


@pytest.fixture(scope="module")
def deberta(deberta_config, tmp_path_factory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("deberta") / "run")
    pretrain(deberta_config, run)
    return run


def leaves(tree):
    return {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def tables(params):
    return params["bert"]["embeddings"], generator_parameters(params)["bert"]["embeddings"]


def class_in(folder):
    return json.loads((folder / "config.json").read_text())["architectures"]


def test_a_run_learns_and_shows_the_baseline(electra, tmp_path, capsys):
    results, lines = json.loads(electra.results_file.read_text()), read_metrics(electra.metrics_file)
    assert results["metric"] == "rtd_accuracy" and results["score"] == results["rtd_accuracy"]
    assert results["loss"] == pytest.approx(results["mlm_loss"] + 50 * results["rtd_loss"])
    trained = [line for line in lines if line["split"] == "train"]
    assert all(line["loss"] == pytest.approx(line["mlm_loss"] + 50 * line["rtd_loss"], rel=0.02) for line in trained)
    assert trained[-1]["loss"] < trained[0]["loss"] - 5 and results["mlm_loss"] < np.log(150)
    share = results["rtd_replaced"]
    assert results["baseline"]["rtd_accuracy"] == 1 - share and 0.05 < share < 0.16
    assert results["baseline"]["rtd_loss"] == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share))
    again = evaluate_run(electra).content
    assert all(again[name] == results[name] for name in ("loss", "rtd_replaced"))
    shutil.copytree(electra.path, tmp_path / "copy")
    assert command(["pretrain", str(electra.path), "--workdir", str(tmp_path / "copy")]) == 0
    shown = capsys.readouterr().out
    assert "RTD accuracy" in shown and "always an original" in shown and ".tokens.shape" in shown


def test_the_generator_fills_masks_and_the_discriminator_encodes(electra):
    bert = bert_jax.load(electra.path)
    assert bert.generator.config == bert.config.generator and bert.generator.config.hidden_size == 16
    fills = bert.fill_mask("The old [MASK].", top=3)
    assert fills == bert.generator.fill_mask("The old [MASK].", top=3) and len(fills[0]) == 3
    vectors = bert.encode(["The old cat"])
    assert vectors.tokens.shape[2] == 32 and vectors.pooled is None
    [feature] = bert.features(["The old cat"])
    assert feature.vectors.shape == (len(feature.pieces), 64)


def test_it_is_continued_and_exported_and_read_again(electra, electra_config, tmp_path, capsys):
    def begin(init):
        config = electra_config.replace(init=str(init))
        initial = open_initial(config, OpenedModels())
        initial_parameters(initial, config, electra.files.tokenizer, make_mesh(config.mesh))
        return capsys.readouterr().err

    assert "random values" not in begin(electra.path)
    assert command(["export", str(electra.path), str(tmp_path / "out")]) == 0
    trained = jax.device_get(bert_jax.load(electra.path))
    kinds = []
    for folder, params in (("out", trained.params), ("out/generator", trained.generator.params)):
        kinds += class_in(tmp_path / folder)
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
    assert "the model to start from has no generator: random values" in begin(tmp_path / "out")


def test_a_deberta_goes_on_bit_for_bit_and_its_tables_grow_apart(deberta_config, deberta, resumed):
    stopped = resumed(deberta_config, 7, deberta)
    assert parameters(stopped.path) == parameters(deberta.path)
    theirs, own = tables(bert_jax.load(stopped.path).params)
    assert 0 < np.abs(theirs["word"] - own["word"]).max() < 0.1


def test_both_models_of_a_deberta_are_read_by_transformers(deberta, tmp_path):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    bert = bert_jax.load(deberta.path)
    params, without_decoder = jax.tree.map(lambda leaf: leaf, bert.params), bert.config.replace(mask_decoder=False)
    del params["generator"]["masked_lm"]["position"]
    write_model_directory(tmp_path / "out", without_decoder, jax.device_get(params), bert.tokenizer)
    assert class_in(tmp_path / "out") == ["DebertaV2ForTokenClassification"]
    assert class_in(tmp_path / "out/generator") == ["DebertaV2ForMaskedLM"]
    ids = [*bert.tokenizer.vocabulary.frame.around(1)[0], 9, 11, 13]
    tokens = jax.tree.map(jnp.asarray, lay_out_sequences([TokenSequence(ids, len(ids))], (1, len(ids)), pad_id=0))
    classifier = transformers.DebertaV2ForTokenClassification.from_pretrained(tmp_path / "out").eval()
    generator = transformers.DebertaV2ForMaskedLM.from_pretrained(tmp_path / "out" / "generator").eval()
    with torch.no_grad():
        scores = classifier(torch.tensor([ids])).logits[..., 0].numpy()
        logits = generator(torch.tensor([ids])).logits.numpy()
    np.testing.assert_allclose(bert.module.apply({"params": params}, tokens), scores, atol=1e-5)
    network = BertForPretraining(without_decoder.generator)
    found = network.apply({"params": generator_parameters(params)}, tokens)[0][..., : logits.shape[-1]]
    np.testing.assert_allclose(found, logits, atol=1e-5)
    back = bert_jax.load(tmp_path / "out")
    assert back.config.discriminator
    jax.tree.map(np.testing.assert_array_equal, back.params, {name: params[name] for name in ("bert", "replaced")})


def test_a_mask_decoder_is_left_out_of_files_with_a_line(deberta, tmp_path, capsys):
    bert = bert_jax.load(deberta.path)
    assert len(bert.fill_mask("The old [MASK].", top=3)[0]) == 3
    write_model_directory(tmp_path / "out", bert.config, jax.device_get(bert.params), bert.tokenizer)
    assert "without its masked-language head" in capsys.readouterr().err
    assert class_in(tmp_path / "out/generator") == ["DebertaV2Model"]


def test_a_discriminator_alone_goes_on_with_a_generator_that_has_its_words(deberta_config, deberta, tmp_path):
    bert = bert_jax.load(deberta.path)
    alone = {name: part for name, part in jax.device_get(bert.params).items() if name != "generator"}
    save_model(tmp_path / "alone", bert.config, alone, bert.tokenizer, None)
    trained = open_initial(deberta_config.replace(init=str(tmp_path / "alone")), OpenedModels())
    theirs, own = tables(initial_parameters(trained, deberta_config, bert.tokenizer, make_mesh(MeshConfig(data=1))))
    words = alone["bert"]["embeddings"]["word"]
    assert np.array_equal(theirs["word"], words) and np.array_equal(own["word"], words)
    with pytest.raises(UsageError, match="its 1 layer; set --model.generator-layers=1"):
        fewer = {"model.generator_layers": None, "init": str(deberta.path), "init_layers": (0, 1)}
        open_initial(deberta_config.set(fewer), OpenedModels())
