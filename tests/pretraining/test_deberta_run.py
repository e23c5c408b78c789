"""DeBERTa-v3's pretraining: tables that are disentangled, a mask decoder, and what transformers reads of a run."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from objectives import gradients_of, objective_of
from stages import parameters, stopped_at

import bert_jax
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import MeshConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import SettingsError
from bert_jax.config.training import OptimizerConfig, Phase
from bert_jax.interchange.export import export_obstacle, write_model_directory
from bert_jax.layout import TokenSequence, lay_out_sequences
from bert_jax.model.bert import BertForPretraining, generator_parameters, init
from bert_jax.model.sharding import make_mesh
from bert_jax.model.size import num_parameters
from bert_jax.pretraining.initial import initial_parameters, open_initial
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import save_model
from bert_jax.system.errors import UsageError
from bert_jax.text.vocabulary import Vocabulary
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.step import example_keys

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
MODEL = ModelConfig(num_layers=2, hidden_size=16, max_positions=24, vocabulary_size=60, **OF_DEBERTA)


def tables(params):
    return params["bert"]["embeddings"], generator_parameters(params)["bert"]["embeddings"]


@pytest.mark.parametrize("positions", ["disentangled", "learned"])
@pytest.mark.long(first=1)
def test_what_is_shared_begins_equal(positions):
    changes = {} if positions == "disentangled" else {"distance_buckets": None, "clamped_distance": None}
    changes |= {"positions": positions, "mask_decoder": False}
    key = jax.random.key(0)
    theirs, own = tables(init(MODEL.replace(**changes), key))
    assert np.array_equal(theirs["word"], own["word"]) and theirs["norm"] is not own["norm"]
    assert positions == "disentangled" or np.array_equal(theirs["position"], own["position"])
    theirs, own = tables(init(MODEL.replace(**changes, shared_embeddings="none"), key))
    assert not np.array_equal(theirs["word"], own["word"])
    apart, together = (num_parameters(MODEL.replace(**changes, shared_embeddings=kind)) for kind in ("none", "all"))
    rows = 60 + (24 if positions == "learned" else 0)
    assert apart - together == rows * 16 + 2 * 16  # of the tables and the norm


@pytest.mark.long
def test_a_table_moves_as_if_its_difference_were_stored():
    """The authors' parametrisation, E_D = stop_gradient(E_G) + difference, by optax' own AdamW."""
    objective, rate = objective_of(MODEL, ASKED), 0.01
    params = init(MODEL, jax.random.key(0))
    word = params["bert"]["embeddings"]["word"]
    plain = {"word": {"word": word, "difference": jnp.zeros_like(word)}}
    theirs = optax.chain(
        optax.clip_by_global_norm(1.0), optax.scale_by_adam(eps=1e-6), optax.add_decayed_weights(0.1), optax.scale(-1)
    )
    coupled = objective.optimizer(make_optimizer(OptimizerConfig(weight_decay=0.1, bias_correction=True, epsilon=1e-6)))
    slots, their_slots = coupled.init(params), theirs.init(plain)
    zero, moved = jax.tree.map(jnp.zeros_like, params), jax.jit(coupled.update)
    for step in range(4):
        of_generator, of_difference = jax.random.normal(jax.random.key(step), (2, *word.shape)) * 1e-3
        gradients = jax.tree.map(lambda leaf: leaf, zero)
        gradients["bert"]["embeddings"]["word"] = of_difference
        gradients["generator"]["bert"]["embeddings"]["word"] = of_generator
        updates, slots = moved(gradients, slots, params)
        params = jax.tree.map(lambda old, update: old + rate * update, params, updates)
        of_theirs = {"word": {"word": of_generator, "difference": of_difference}}
        updates, their_slots = theirs.update(of_theirs, their_slots, plain)
        plain = jax.tree.map(lambda old, update: old + rate * update, plain, updates)
    discriminators, generators = tables(params)
    np.testing.assert_allclose(generators["word"], plain["word"]["word"], atol=1e-7)
    np.testing.assert_allclose(discriminators["word"], plain["word"]["word"] + plain["word"]["difference"], atol=1e-7)
    assert np.abs(plain["word"]["difference"]).max() > 0.01


@pytest.mark.long
def test_each_loss_trains_its_own_part():
    some = objective_of(MODEL, ASKED)
    batch = jax.tree.map(jnp.asarray, some.random_batch((4, 24)))
    keys = example_keys(0, "targets", 0, batch.ordinal)
    targets = some.targets(batch, keys)
    params = init(MODEL.replace(initializer_range=0.2), jax.random.key(1))
    for weights, still in (((1.0, 0.0), "bert"), ((0.0, 1.0), "generator")):
        objective = objective_of(MODEL, ASKED)
        objective.losses = dict(zip(some.losses, weights, strict=True))
        gradients, _ = gradients_of(objective, params, targets, keys)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradients.pop(still)))
        gradients.pop("replaced")
        leaves = jax.tree_util.tree_leaves_with_path(gradients)
        assert leaves and all(np.any(leaf) for _, leaf in leaves), [path for path, leaf in leaves if not np.any(leaf)]


def test_the_mask_decoder_is_the_authors():
    """The last block twice on the input of the last block plus positions, by transformers' own layers. The authors'
    code reads absolute positions there: `EnhancedMaskDecoder` in masked_language_model.py."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model = MODEL.encoder.replace(mask_decoder=True, initializer_range=0.3)
    network, params = BertForPretraining(model), init(model, jax.random.key(2))
    sequences = [TokenSequence([2, *range(7, 7 + length), 3], length + 2) for length in (9, 15)]
    tokens = jax.tree.map(jnp.asarray, lay_out_sequences(sequences, (2, 24), pad_id=0))
    places = jnp.asarray([[1, 4, 10], [3, 8, 16]])
    found = jax.jit(network.apply)({"params": params}, tokens, places)[0]
    config = transformers.DebertaV2Config(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=24, type_vocab_size=0, relative_attention=True, position_buckets=8,
        max_relative_positions=32, pos_att_type=["p2c", "c2p"], share_att_key=True, norm_rel_ebd="layer_norm",
        position_biased_input=False, layer_norm_eps=1e-7,
    )  # fmt: skip
    theirs = transformers.DebertaV2Model(config).eval()
    _load(theirs, params, model)
    ids, mask = torch.tensor(np.array(tokens.ids)), torch.tensor(np.array(tokens.sequence) > 0)
    with torch.no_grad():
        hidden = theirs(ids, mask, output_hidden_states=True).hidden_states[-2]
        attention = theirs.encoder.get_attention_mask(mask.long())
        relative = theirs.encoder.get_rel_pos(hidden)
        queries = hidden + torch.tensor(np.array(params["masked_lm"]["position"]))[None]
        for _ in range(2):
            queries, _ = theirs.encoder.layer[-1](
                hidden, attention, query_states=queries, relative_pos=relative,
                rel_embeddings=theirs.encoder.get_rel_embedding(),
            )  # fmt: skip
    head = network.bind({"params": params})
    expected = head.masked_lm(jnp.asarray(queries.numpy()), params["bert"]["embeddings"]["word"]).whole()
    expected = jnp.take_along_axis(expected, places[:, :, None], axis=1)
    np.testing.assert_allclose(found[..., :60], expected[..., :60], atol=1e-5 * float(jnp.abs(expected).max()))


def _load(theirs, params, model: ModelConfig) -> None:
    import torch

    from bert_jax.interchange.export import their_tensors
    from bert_jax.interchange.relatives import RELATIVES
    from bert_jax.interchange.tensor_names import to_tensors

    named = their_tensors(to_tensors({"bert": params["bert"]}, model), RELATIVES["deberta-v2"])
    tensors = {name.removeprefix("deberta."): torch.tensor(tensor) for name, tensor in named.items()}
    missing, unexpected = theirs.load_state_dict(tensors, strict=False)
    assert not missing and all("pooler" in name for name in unexpected), (missing, unexpected)


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
    trained = open_initial(config.replace(init=str(tmp_path / "alone")))
    params = initial_parameters(trained, config, bert.tokenizer, make_mesh(MeshConfig(data=1)))
    theirs, own = tables(params)
    assert np.array_equal(theirs["word"], own["word"]) and np.array_equal(
        theirs["word"], alone["bert"]["embeddings"]["word"]
    )
    with pytest.raises(UsageError, match="its 1 layer; set --model.generator-layers=1"):
        fewer = {"model.generator_layers": None, "init": str(run.path), "init_layers": (0, 1)}
        open_initial(config.set(fewer))


def test_it_is_not_said_before_an_export(capsys):
    shapes = jax.eval_shape(lambda: init(MODEL, jax.random.key(0)))
    vocabulary = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(55))])
    assert export_obstacle(MODEL, shapes, vocabulary) is None and capsys.readouterr().err == ""


_NO_GENERATOR = {"generator_divisor": None, "generator_layers": None, "shared_embeddings": "all"}


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"generator_divisor": None, "generator_layers": None}, "shared-embeddings=disentangled with"),
        ({"shared_embeddings": "all", "generator_divisor": None}, "generator-layers=1 with"),
        (_NO_GENERATOR, "mask-decoder has no effect"),
        ({**_NO_GENERATOR, "discriminator": False}, "discriminator-head=product with"),
        ({"positions": "rotary", "distance_buckets": None, "clamped_distance": None}, "mask-decoder with"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes, said):
    with pytest.raises(SettingsError, match=said):
        MODEL.replace(**changes)
