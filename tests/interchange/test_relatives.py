"""The same numbers as transformers' classes of BERT and its relatives: tests/golden/make.py and make_relatives.py make
the files."""

import functools
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors.numpy import load_file
from token_rows import tokens_of

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.export import export_obstacle, their_tensors, write_model_directory
from bert_jax.interchange.model_directory import open_model_directory
from bert_jax.interchange.model_settings import model_config
from bert_jax.interchange.relatives import RELATIVES
from bert_jax.interchange.tensor_names import to_tensors
from bert_jax.model.bert import BertForPretraining, Discriminator, completed, parameter_shapes
from bert_jax.model.kernels.cross_entropy import cross_entropy
from bert_jax.system.errors import UsageError
from bert_jax.text.wordpiece import WordPieceTokenizer

FOLDER = Path(__file__).parents[1] / "golden" / "relatives"
THEIR_NAMES = {"input_ids": "ids", "token_type_ids": "segments", "attention_mask": "mask"}
BERTS = [FOLDER.parent / "gelu_erf", FOLDER.parent / "gelu_tanh"]


class Golden:
    """A model as transformers wrote it, and what transformers computed with it."""

    def __init__(self, folder: Path):
        self.folder, self.expected = folder, load_file(folder / "expected.safetensors")
        if folder in BERTS:  # whose losses have names of their own
            self.expected["logits.pair"] = self.expected["logits.nsp"]
            self.expected["loss"] = self.expected["loss.mlm"] + self.expected["loss.nsp"]
        self.published = open_model_directory(folder)
        self.config = self.published.config
        self.params = jax.tree.map(jnp.asarray, self.published.parameters())
        batch = {key.partition(".")[2]: value for key, value in self.expected.items() if key.startswith("batch.")}
        self.batch = {key: jnp.asarray(value, jnp.int32) for key, value in batch.items()}
        self.tokens = tokens_of(*(batch[name].astype(np.int32) for name in ("ids", "segments")), batch["mask"])
        self.order = {"ranks": self.batch["ranks"]} if "ranks" in batch else {}

    def completed(self, params):
        """Variables of BertForPretraining: the parts that the model lacks have any parameters."""
        others = jax.tree.map(lambda leaf: jnp.asarray(np.ones(leaf.shape, leaf.dtype)), parameter_shapes(self.config))
        return {"params": completed(params, others)}

    def logits(self, params):
        """Of both heads."""
        model = BertForPretraining(self.config)
        tokens, pairs = model.apply(self.completed(params), self.tokens, self.batch["positions"], **self.order)
        return tokens[..., : self.config.vocabulary_size], None if pairs is None else pairs[:, 0]

    def replaced(self, params):
        """Logits of each token's being replaced, of a discriminator."""
        return Discriminator(self.config).apply({"params": params}, self.tokens)

    def loss(self, params):
        """The mean loss of the predicted tokens, and that of the pairs where the class has it; of a discriminator that
        of all tokens. Also the logits of tokens, and of pairs or None."""
        if self.config.discriminator:
            tokens = self.replaced(params)
            losses = optax.sigmoid_binary_cross_entropy(tokens, self.batch["replaced"])
            return jnp.sum(losses * self.batch["mask"]) / jnp.sum(self.batch["mask"]), (tokens, None)
        tokens, pairs = self.logits(params)
        losses, weights = cross_entropy(tokens, self.batch["labels"])[0], self.batch["weights"]
        loss = jnp.sum(losses * weights) / jnp.sum(weights)
        if "logits.pair" in self.expected:
            loss += jnp.mean(cross_entropy(pairs, self.batch["pair_label"])[0])
        return loss, (tokens, pairs)

    @functools.cached_property
    def computed(self):
        """Loss, logits and gradients, by one program."""
        return jax.device_get(jax.jit(jax.value_and_grad(self.loss, has_aux=True))(self.params))


@pytest.fixture(scope="module", params=[*sorted(FOLDER.iterdir()), *BERTS], ids=lambda folder: folder.name)
def golden(request):
    return Golden(request.param)


def test_hidden_states_of_every_layer(golden):
    encode = jax.jit(functools.partial(BertForPretraining(golden.config).apply, return_layers=True, method="encode"))
    found = encode(golden.completed(golden.params), golden.tokens, **golden.order).layers
    there = np.tile(golden.batch["mask"] > 0, (1, 2 if golden.order else 1))  # XLNet's are those of two streams
    for number, layer in enumerate(found):
        expected = golden.expected[f"hidden.{number}"]
        if expected.shape == layer.shape:  # ALBERT's first is that of its narrow tables
            np.testing.assert_allclose(layer[there], expected[there], atol=1e-5)


@pytest.mark.long(first=1)
def test_logits_and_losses(golden):
    (loss, (tokens, pairs)), _ = golden.computed
    if golden.config.discriminator:
        used, expected = golden.batch["mask"] > 0, golden.expected["logits.replaced"]
    else:
        rows, used = np.arange(len(tokens))[:, None], golden.batch["weights"] > 0
        expected = golden.expected["logits.mlm"][rows, golden.batch["positions"]]
    np.testing.assert_allclose(tokens[np.asarray(used)], expected[np.asarray(used)], atol=1e-5)
    if "logits.pair" in golden.expected:
        np.testing.assert_allclose(pairs, golden.expected["logits.pair"], atol=1e-5)
    assert float(loss) == pytest.approx(float(golden.expected["loss"]), abs=1e-5)


def test_every_gradient(golden):
    _, gradients = golden.computed
    relative = RELATIVES[golden.config.model_type]
    ours = their_tensors(to_tensors(gradients, golden.config), relative)
    theirs = {key.removeprefix("gradient."): value for key, value in golden.expected.items() if "gradient." in key}
    assert theirs and theirs.keys() <= ours.keys()
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, atol=1e-4 * np.abs(expected).max() + 1e-7, err_msg=name)


def test_what_is_exported_is_what_was_imported(golden, tmp_path):
    published = golden.published
    assert not published.unused
    if golden.folder in BERTS:
        assert golden.config.activation == golden.folder.name and not published.absent
    write_model_directory(tmp_path / "model", published.config, published.parameters(), published.tokenizer)
    before, after = (load_file(folder / "model.safetensors") for folder in (golden.folder, tmp_path / "model"))
    assert before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)
    again = open_model_directory(tmp_path / "model")
    assert again.config == published.config and again.absent == published.absent
    settings = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    vocabulary = published.tokenizer.vocabulary
    takes_segments = golden.config.num_segments > 1 or golden.config.has_query_stream
    assert ("token_type_ids" in settings["model_input_names"]) == (takes_segments and vocabulary.frame.segments)
    assert settings["model_max_length"] == published.config.max_positions
    assert settings["mask_token"] in vocabulary.special and settings["pad_token"] in vocabulary.special
    assert settings.get("padding_side") == ("left" if vocabulary.class_token == "last" else None)
    assert {"do_lower_case", "strip_accents"} <= settings.keys() or not isinstance(
        published.tokenizer, WordPieceTokenizer
    )


def test_a_pretrained_model_is_exported_as_a_class_that_there_is(golden, tmp_path):
    """With all heads, as a run of ours has them."""
    config = golden.config
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), parameter_shapes(config))
    kind = write_model_directory(tmp_path / "model", config, params, golden.published.tokenizer)
    relative = RELATIVES[config.model_type]
    lacks = frozenset() if config.discriminator else relative.lacks
    expected = f"For{'MaskedLM' if lacks else 'PreTraining'}"
    assert kind == relative.classes + relative.suffixes.get(expected, expected)
    again = open_model_directory(tmp_path / "model")
    assert again.absent == lacks and not again.unused


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("nomic_bert", {"head_dim": 16}, "head_dim is 16 with hidden_size 36 and num_attention_heads 3; bert_jax's"),
        ("nomic_bert", {"prenorm": True}, "prenorm is True; bert_jax's NomicBERT has False"),
        ("nomic_bert", {"activation_function": "geglu"}, "function is 'geglu'; bert_jax's NomicBERT has 'sw"),
        ("nomic_bert", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn': input should be 'default'"),
        ("eurobert", {"rope_scaling": {"factor": 2}}, "rope_scaling is .*; bert_jax scales no rotations"),
        ("eurobert", {"num_key_value_heads": 4}, "num-heads=6 is not a multiple of --model.key-value-heads=4"),
        ("eurobert", {"mlp_bias": True}, "mlp_bias is True; bert_jax's EuroBert has False"),
        (
            "bert",
            {"model_type": "new", "auto_map": {"AutoModel": "a--b.C"}},
            "model_type is 'new'; auto_map names the author's code, which isn't run here; bert_jax knows bert,",
        ),
        (
            "bert",
            {"model_type": "mobilebert"},
            "model_type is 'mobilebert'.* modernbert, modernbert-decoder, xlnet; give a model of one of these$",
        ),
        ("distilbert", {"pruned_heads": {"1": [0]}}, "pruned_heads is .*; bert_jax's DistilBert has {}"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "num_buckets is 64; bert_jax's MPNet has 32"),
        ("deberta", {"position_buckets": -1}, "position_buckets is -1; bert_jax's DeBERTa has 2 and more"),
        ("deberta", {"pos_att_type": "p2p|c2p"}, r"pos_att_type is .*; bert_jax's DeBERTa has \['c2p', 'p2c'\]"),
        ("deberta", {"conv_kernel_size": 3}, "conv_kernel_size is 3; bert_jax's DeBERTa has 0"),
        ("deberta", {"position_biased_input": True}, "position_biased_input is True; bert_jax's DeBERTa has False"),
        ("mpnet", {"pad_token_id": 0}, "pad_token_id is 0; bert_jax's MPNet has 1"),
        ("modernbert", {"layer_types": ["full_attention"] * 4 + ["sliding_attention"]}, "layer_types is .* 5 layers; "),
        ("modernbert", {"global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0: .* or equal to 1"),
        ("modernbert", {"local_attention": "128"}, "local_attention is '128': input should be a valid integer"),
        ("modernbert", {"rope_parameters": {"rope_theta": 5.0}}, "rope_theta is 5.0: extra inputs are not"),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "is 'yarn': input should be"),
        ("modernbert", {"rope_scaling": {"factor": 2}}, "rope_scaling is .*; bert_jax scales no rotations"),
        ("modernbert", {"attention_bias": True}, "attention_bias is True; bert_jax's ModernBert has False"),
        ("modernbert", {"classifier_activation": "relu"}, "classifier_activation is 'relu'; bert_jax has gelu, "),
        ("xlnet", {"d_head": 7}, "d_head is 7 with d_model 30 and n_head 5; bert_jax's heads are d_model / n_head"),
        ("xlnet", {"n_head": 4, "d_head": None}, "size=30 is not a multiple of .*d_model there"),
        ("xlnet", {"attn_type": "uni"}, "attn_type is 'uni'; bert_jax's XLNet has 'bi'"),
        ("xlnet", {"bi_data": True}, "bi_data is True; bert_jax's XLNet has False"),
        ("xlnet", {"summary_type": "mean"}, "summary_type is 'mean'; bert_jax's XLNet has 'last'"),
        ("xlnet", {"hidden_size": 32}, "hidden_size and d_model are one setting with two values"),
        ("xlnet", {"clamp_len": 0.5}, "clamp_len is 0.5: input should be a valid integer"),
        ("xlnet", {"d_model": 35, "d_head": 7}, "hidden-size=35 is odd and .*relative pairs .*d_model"),
    ],
)
def test_what_bert_jax_does_not_compute_is_one_line(name, changes, words):
    folder = FOLDER / name if name != "bert" else BERTS[0]
    values = json.loads((folder / "config.json").read_text()) | changes
    with pytest.raises(UsageError, match=f"^config.json: .*{words}") as refused:
        model_config(values, Path("config.json"))
    assert "\n" not in str(refused.value)


def test_the_newer_head_of_deberta_is_read_where_config_json_names_it(transformers, tmp_path):
    """DeBERTa-v3's files have it, and no config.json says so."""
    shutil.copytree(FOLDER / "deberta", tmp_path / "old")
    theirs = transformers.DebertaV2ForMaskedLM(
        transformers.DebertaV2Config.from_pretrained(tmp_path / "old", legacy=False)
    )
    theirs.save_pretrained(tmp_path / "new")
    shutil.copy(FOLDER / "deberta" / "vocab.txt", tmp_path / "new")
    published = open_model_directory(tmp_path / "new")
    assert not published.unused and "masked_lm" not in published.absent
    write_model_directory(tmp_path / "ours", published.config, published.parameters(), published.tokenizer)
    again = transformers.DebertaV2ForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    torch = pytest.importorskip("torch")
    ids = torch.tensor([[2, 7, 9, 11, 3]])
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, theirs.eval()(ids).logits, atol=1e-5, rtol=0)
    values = json.loads((tmp_path / "new" / "config.json").read_text())
    del values["legacy"]
    (tmp_path / "new" / "config.json").write_text(json.dumps(values))
    unnamed = open_model_directory(tmp_path / "new")
    assert "masked_lm" in unnamed.absent and any("set legacy to false" in why for why in unnamed.unused.values())


def test_the_keys_of_nomicberts_authors_are_read():
    """Their class has GPT-2's names."""
    values = {"model_type": "nomic_bert", "n_embd": 96, "n_layer": 3, "n_head": 4, "n_inner": 80, "n_positions": 90}
    values |= {"layer_norm_epsilon": 1e-5, "rotary_emb_base": 500.0, "activation_function": "swiglu", "prenorm": False}
    read = model_config(values, Path("config.json"))
    sizes = read.hidden_size, read.num_layers, read.num_heads, read.inner_size, read.max_positions
    assert sizes == (96, 3, 4, 80, 90) and read.layer_norm_epsilon == 1e-5 and read.rotary_base == 500.0
    assert read.activation == "silu"


def test_tensors_of_another_kind_than_config_json_says_are_one_line(tmp_path):
    for path in (FOLDER / "roberta").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes().replace(b'"roberta"', b'"electra"'))
    settings = json.loads((tmp_path / "config.json").read_text()) | {"embedding_size": 12}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    said = "lacks the tensor electra.embeddings.*, .* are a roberta's, and config.json calls it elec"
    with pytest.raises(UsageError, match=said):
        open_model_directory(tmp_path)


def test_layers_that_are_all_global_are_read():
    values = json.loads((FOLDER / "modernbert" / "config.json").read_text())
    values["classifier_pooling"] = "mean"  # of the published model's class for sentences, whose head isn't read
    every_layer = {"layer_types": ["full_attention"] * values["num_hidden_layers"]}
    assert model_config(values | every_layer, Path("config.json")).global_every == 1


def test_a_table_of_fixed_positions_has_the_rows_before_the_first_position():
    config = ModelConfig.tiny().replace(positions="sinusoidal", first_position=2, vocabulary_size=9)
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), parameter_shapes(config))
    table = to_tensors(params, config)["bert.embeddings.position_embeddings.weight"]
    assert len(table) == config.max_positions + 2 and not table[:2].any() and table[2].any()


def test_settings_that_a_kind_does_not_have_are_not_exported(golden, tmp_path):
    config = ModelConfig(**golden.config.model_dump() | {"model_type": "bert", "num_task_types": 5})
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), parameter_shapes(config))
    with pytest.raises(
        UsageError, match=r"--model\.[\w-]+=\w+ can't be exported: .* --model.model-type=bert has"
    ) as refused:
        write_model_directory(tmp_path / "model", config, params, golden.published.tokenizer)
    vocabulary = golden.published.tokenizer.vocabulary
    reason = export_obstacle(config, parameter_shapes(config), vocabulary)  # before it is trained
    assert reason == str(refused.value)
    assert export_obstacle(golden.config, parameter_shapes(golden.config), vocabulary) is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model_type", RELATIVES)
def test_keys_that_config_json_lacks_have_the_defaults_of_the_class(model_type, transformers):
    relative = RELATIVES[model_type]
    read = {*relative.sizes, *relative.rates, *relative.activations}
    theirs = transformers.AutoConfig.for_model(model_type).to_dict()
    assert relative.defaults == {name: theirs[name] for name in read}
    if model_type == "deberta-v2":  # whose class has no relative attention by default
        with pytest.raises(UsageError, match="relative_attention is False; bert_jax's DeBERTa has True"):
            model_config({"model_type": model_type}, Path("config.json"))
        return
    without = model_config({"model_type": model_type}, Path("config.json"))
    assert without == model_config(theirs, Path("config.json"))


@pytest.mark.parametrize(("model_type", "own"), [("modernbert", 0), ("modernbert-decoder", 1)])
@pytest.mark.parametrize(
    "keys", [{}, {"local_attention": 20}, {"sliding_window": 6}, {"sliding_window": 6, "local_attention": 20}]
)
def test_the_window_is_the_one_that_transformers_takes(model_type, own, keys, transformers):
    theirs = transformers.AutoConfig.for_model(model_type, **keys).sliding_window
    assert model_config({"model_type": model_type, **keys}, Path("config.json")).local_window == theirs - own


@pytest.mark.parametrize("name", ["albert", "electra_generator", "modernbert", "roberta"])
def test_the_head_has_the_activation_of_the_class(name, transformers, tmp_path):
    torch = pytest.importorskip("torch")
    shutil.copytree(FOLDER / name, tmp_path / name)
    file = tmp_path / name / "config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"hidden_act": "gelu_new", "hidden_activation": "gelu_new"}))
    model = Golden(tmp_path / name)
    batch = {theirs: torch.tensor(np.asarray(model.batch[ours], np.int64)) for theirs, ours in THEIR_NAMES.items()}
    if not model.config.num_segments:
        del batch["token_type_ids"]
    with torch.no_grad():
        expected = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / name).eval()(**batch).logits.numpy()
    tokens, _ = jax.jit(model.logits)(model.params)
    places = np.arange(len(tokens))[:, None], model.batch["positions"]
    used = np.asarray(model.batch["weights"] > 0)
    np.testing.assert_allclose(np.asarray(tokens)[used], expected[places][used], atol=2e-5)
