"""A run of DeBERTa-v3's pretraining, and what transformers reads of it."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stages import parameters, stopped_at

import bert_jax
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import MeshConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase
from bert_jax.interchange.export import write_model_directory
from bert_jax.layout import TokenSequence, lay_out_sequences
from bert_jax.model.bert import BertForPretraining, generator_parameters
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.initial import initial_parameters, open_initial
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import save_model
from bert_jax.system.errors import UsageError

ASKED = ObjectiveConfig(predict="replaced", pair="none")
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


def tables(params):
    return params["bert"]["embeddings"], generator_parameters(params)["bert"]["embeddings"]


@pytest.fixture(scope="module")
def config(tiny_config) -> RunConfig:
    return tiny_config.replace(
        model=tiny_config.model.replace(**OF_DEBERTA),
        objective=ASKED,
        phases=(Phase(steps=12, length=32, batch_size=8),),
        checkpoints=tiny_config.checkpoints.replace(every=6),
    )


@pytest.fixture(scope="module")
def run(config, tmp_path_factory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("deberta") / "run")
    pretrain(config, run)
    return run


@pytest.mark.long
def test_a_run_goes_on_bit_for_bit(config, run, tmp_path):
    stopped = tmp_path / "run"
    with stopped_at(7):
        pretrain(config, RunDirectory(stopped))
    pretrain(config, RunDirectory(stopped))
    assert parameters(stopped) == parameters(run.path)
    theirs, own = tables(bert_jax.load(stopped).params)
    assert 0 < np.abs(theirs["word"] - own["word"]).max() < 0.1


def class_in(folder):
    return json.loads((folder / "config.json").read_text())["architectures"]


@pytest.mark.long
def test_both_models_are_read_by_transformers(run, tmp_path):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    bert = bert_jax.load(run.path)
    params, without_decoder = jax.tree.map(lambda leaf: leaf, bert.params), bert.config.replace(mask_decoder=False)
    del params["generator"]["masked_lm"]["position"]
    write_model_directory(tmp_path / "out", without_decoder, jax.device_get(params), bert.tokenizer)
    names = [
        json.loads((tmp_path / f"out{part}/config.json").read_text())["architectures"] for part in ("", "/generator")
    ]
    assert names == [["DebertaV2ForTokenClassification"], ["DebertaV2ForMaskedLM"]]
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


@pytest.mark.long
def test_a_mask_decoder_is_left_out_of_files_with_a_line(run, tmp_path, capsys):
    bert = bert_jax.load(run.path)
    assert len(bert.fill_mask("The old [MASK].", top=3)[0]) == 3
    write_model_directory(tmp_path / "out", bert.config, jax.device_get(bert.params), bert.tokenizer)
    assert "without its masked-language head" in capsys.readouterr().err
    assert class_in(tmp_path / "out/generator") == ["DebertaV2Model"]


@pytest.mark.long
def test_a_discriminator_alone_goes_on_with_a_generator_that_has_its_words(config, run, tmp_path):
    bert = bert_jax.load(run.path)
    alone = {name: part for name, part in jax.device_get(bert.params).items() if name != "generator"}
    save_model(tmp_path / "alone", bert.config, alone, bert.tokenizer, None)
    trained = open_initial(config.replace(init=str(tmp_path / "alone")), OpenedModels())
    params = initial_parameters(trained, config, bert.tokenizer, make_mesh(MeshConfig(data=1)))
    theirs, own = tables(params)
    assert np.array_equal(theirs["word"], own["word"]) and np.array_equal(
        theirs["word"], alone["bert"]["embeddings"]["word"]
    )
    with pytest.raises(UsageError, match="its 1 layer; set --model.generator-layers=1"):
        fewer = {"model.generator_layers": None, "init": str(run.path), "init_layers": (0, 1)}
        open_initial(config.set(fewer), OpenedModels())
