"""Exports, loaded by transformers itself. Skipped where it isn't installed: pip install torch transformers."""

import jax
import numpy as np
import pytest
from token_rows import tokens_of
from trained_tokenizers import trained

import bert_jax
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.task_kind import TASK_KINDS
from bert_jax.finetuning.batches import task_batch
from bert_jax.finetuning.objective import TaskObjective
from bert_jax.finetuning.task import Example
from bert_jax.inference.bert import Bert
from bert_jax.interchange.export import write_model_directory
from bert_jax.interchange.model_directory import open_model_directory
from bert_jax.interchange.relatives import RELATIVES
from bert_jax.layout import TokenSequence, lay_out_sequences
from bert_jax.model.bert import BertForPretraining, init, without
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.fitting import fitted
from bert_jax.pretraining.initial import initial_parameters, open_initial
from bert_jax.pretraining.vocabulary import existing_tokenizer, make_tokenizer
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import save_model
from bert_jax.system.errors import UsageError
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LETTERS = "abcdefghijklmnopqrstuvwxyzÄé,.!"
TEXTS = [
    "A quick brown fox, jumping over lazy dogs!",
    "Ärger  über\tnaïve cafés …",
    "x" * 150,
    "x" * 201,
    "中文 paper",
    "बच्चे が ක්‍ය e\u0301",
    "",
]


def wordpiece(cleaning: Cleaning) -> WordPieceTokenizer:
    pieces = [*SPECIAL_PIECES, *LETTERS, *(f"##{letter}" for letter in LETTERS), "fox", "jump", "##ing", "xx", "##xx"]
    return WordPieceTokenizer(Vocabulary(pieces), cleaning)


def sentencepiece(kind: str):
    words = [f"{first} {second}!" for first in TEXTS[0].split() for second in "lamp naïve 中文 paper x".split()]
    return trained(kind, 40, tuple(words) * 3, lowercase=False)


CASES = {
    "wordpiece, gelu by tanh": (lambda: wordpiece(Cleaning.of_training()), {}),
    "wordpiece with case, gelu by erf": (lambda: wordpiece(Cleaning(False, False)), {"activation": "gelu_erf"}),
    "unigram, sinusoidal positions": (lambda: sentencepiece("unigram"), {"positions": "sinusoidal"}),
    "bpe, another inner width": (lambda: sentencepiece("bpe"), {"feedforward_size": 24, "num_segments": 3}),
}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """A model of random parameters, zeros too, and where it is exported to."""
    make_tokenizer, settings = CASES[request.param]
    tokenizer, rng = make_tokenizer(), np.random.default_rng(3)
    config = ModelConfig(
        **{"num_layers": 3, "hidden_size": 16, "num_heads": 2, "max_positions": 256, "initializer_range": 0.1},
        vocabulary_size=len(tokenizer.vocabulary),
        **settings,
    )
    start = jax.device_get(init(config, jax.random.key(1)))
    params = jax.tree.map(lambda leaf: leaf + rng.normal(scale=0.1, size=leaf.shape).astype(np.float32), start)
    folder = tmp_path_factory.mktemp("exported") / "model"
    write_model_directory(folder, config, params, tokenizer)
    return Bert(config, params, tokenizer), folder


def loaded(kind: str, folder):
    model, info = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    return model.eval(), info["unexpected_keys"]


def logits_everywhere(config, params, tokens):
    """Of the pieces at every place, and of the pairs."""
    places = np.tile(np.arange(tokens.ids.shape[1]), (len(tokens.ids), 1))
    return jax.jit(BertForPretraining(config).apply)({"params": params}, tokens, places)


def test_its_tokenizer_gives_our_ids(case):
    bert, folder = case
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    vocabulary = bert.tokenizer.vocabulary
    for text in TEXTS:
        ids = bert.tokenizer.encode(text)
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids, text
        pair = theirs(text, "fox")
        second = bert.tokenizer.encode("fox")
        assert pair["input_ids"] == [vocabulary.cls_id, *ids, vocabulary.sep_id, *second, vocabulary.sep_id]
        assert pair["token_type_ids"] == [0] * (len(ids) + 2) + [1] * (len(second) + 1)
    assert (theirs.mask_token_id, theirs.pad_token_id) == (vocabulary.mask_id, vocabulary.pad_id)
    assert theirs.model_max_length == bert.config.max_positions


def test_pretraining_model_loads_whole_and_gives_our_outputs(case):
    bert, folder = case
    model, unexpected = loaded("AutoModelForPreTraining", folder)
    assert not unexpected
    rng = np.random.default_rng(0)
    ids = rng.integers(0, bert.config.vocabulary_size, (3, 20))
    mask = np.arange(20) < np.array([[20], [13], [5]])
    segments = (np.arange(20) > 8).astype(np.int64) * mask
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor(ids), token_type_ids=torch.tensor(segments), attention_mask=torch.tensor(mask)
        )
    pieces, pairs = logits_everywhere(bert.config, bert.params, tokens_of(ids, segments, mask))
    size = bert.config.vocabulary_size
    np.testing.assert_allclose(np.asarray(pieces)[..., :size][mask], out.prediction_logits.numpy()[mask], atol=1e-5)
    np.testing.assert_allclose(pairs[:, 0], out.seq_relationship_logits.numpy(), atol=1e-5)


ONE_CASE = pytest.mark.parametrize("case", [next(iter(CASES))], indirect=True)


@ONE_CASE
@pytest.mark.parametrize(
    "absent, kind",
    [(["masked_lm", "next_sentence"], "AutoModel"), (["next_sentence", "bert/pooler"], "AutoModelForMaskedLM")],
)
def test_a_model_without_some_heads_is_exported_without_them(case, absent, kind, tmp_path):
    bert, _ = case
    params = without(bert.params, absent)
    write_model_directory(tmp_path / "model", bert.config, params, bert.tokenizer)
    assert not loaded(kind, tmp_path / "model")[1]


@pytest.mark.long
def test_a_causal_model_of_modernberts_block_is_a_decoder_there(tmp_path):
    tokenizer = wordpiece(Cleaning.of_training())
    sizes = {"num_layers": 4, "hidden_size": 16, "num_heads": 2, "feedforward_size": 20, "max_positions": 32}
    window = {"local_window": 3, "global_every": 3, "rotary_base": 500.0, "local_rotary_base": 40.0}
    config = ModelConfig.modern(
        **sizes, **window, causal=True, initializer_range=0.3, vocabulary_size=len(tokenizer.vocabulary)
    )
    params = init(config, jax.random.key(1))
    name = write_model_directory(tmp_path / "model", config, jax.device_get(params), tokenizer)
    assert name == "ModernBertDecoderForCausalLM"
    model, unexpected = loaded("AutoModelForCausalLM", tmp_path / "model")
    assert not unexpected
    rng, mask = np.random.default_rng(0), np.arange(20) < np.array([[20], [13]])
    ids = rng.integers(5, config.vocabulary_size, (2, 20))
    with torch.no_grad():
        theirs = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask.astype(int))).logits.numpy()
    pieces, _ = logits_everywhere(config, params, tokens_of(ids, np.zeros_like(ids), mask))
    np.testing.assert_allclose(np.asarray(pieces)[..., : config.vocabulary_size][mask], theirs[mask], atol=1e-5)
    again = open_model_directory(tmp_path / "model")
    assert again.config == config.replace(compute_dtype="float32")
    assert again.absent == RELATIVES["modernbert"].lacks and not again.unused


RELATED = {
    "bert": {},
    "roberta": {"num_segments": 1, "first_position": 1},  # the tokenizer's padding is piece 0
    "albert": {"shared_layers": True, "embedding_size": 12},
    "ernie": {"num_task_types": 3},
    "electra": {"embedding_size": 12, "pooler": "gelu", "activation": "gelu_erf"},
    "distilbert": {**RELATIVES["distilbert"].settings, "activation": "gelu_erf"},
    "mpnet": {**RELATIVES["mpnet"].settings, "first_position": 2},
    "nomic_bert": {**RELATIVES["nomic_bert"].settings, "activation": "silu"},
    "deberta-v2": {
        **RELATIVES["deberta-v2"].settings,
        "distance_buckets": 4,
        "clamped_distance": 24,
        "activation": "gelu_erf",
    },
    "eurobert": {**RELATIVES["eurobert"].settings, "key_value_heads": 1, "activation": "silu"},
    "modernbert": {**RELATIVES["modernbert"].settings, "local_window": 2, "global_every": 3},
    "xlnet": RELATIVES["xlnet"].settings,
}
"""Settings by the kind of model."""
FURTHER = [model for model in RELATED if model not in ("bert", "ernie")]
NAMES = {
    "class": "SequenceClassification",
    "labels": "SequenceClassification",
    "number": "SequenceClassification",
    "tags": "TokenClassification",
    "choice": "MultipleChoice",
    "span": "QuestionAnswering",
}
"""Classes by the kind of task."""


@pytest.mark.parametrize(
    ("model_type", "kind"),
    [
        *(("bert", kind) for kind in NAMES),
        ("ernie", "class"),  # but for its prefix its names are BERT's
        *(
            (model, kind)
            for model in FURTHER
            for kind in ("class", "tags", "choice", "span")
            if f"For{NAMES[kind]}" not in RELATIVES[model].classless
        ),
    ],
)
def test_a_fine_tuned_model_gives_our_outputs(fine_tuned, model_type, kind, tmp_path):
    ours, rng = fine_tuned(kind, model_type=model_type, **RELATED[model_type]), np.random.default_rng(0)
    name = write_model_directory(tmp_path / "model", *ours[1:], ours.task)
    model, unexpected = loaded(name, tmp_path / "model")
    assert not unexpected
    if labels := ours.task.labels:
        assert [model.config.id2label[number] for number in range(len(labels))] == list(labels)
        assert [model.config.label2id[label] for label in labels] == list(range(len(labels)))
    problems = {"class": "single_label_classification", "labels": "multi_label_classification", "number": "regression"}
    assert model.config.problem_type == problems.get(kind)
    again = open_model_directory(tmp_path / "model")
    kernel = again.parameters()["bert"]["encoder"]["layers"]["attention"]["output"]["kernel"]
    np.testing.assert_array_equal(kernel, ours.params["bert"]["encoder"]["layers"]["attention"]["output"]["kernel"])
    assert "masked_lm" in again.absent and {*again.unused.values()} == {"a fine-tuned model's head"}
    lengths = rng.integers(4, 13, (6, 3 if kind == "choice" else 1))
    pairs = ours.config.num_segments > 1 or model_type == "xlnet"
    examples = [
        Example(tuple(TokenSequence(rng.integers(5, 15, size), size // 2 if pairs else size) for size in row))
        for row in lengths
    ]
    tokens = lay_out_sequences([one for example in examples for one in example.sequences], (lengths.size, 12), 0)
    mask, segments, places = tokens.sequence > 0, tokens.segment, np.tile(np.arange(12), (lengths.size, 1))
    if model_type == "xlnet":  # which has its padding on the left, and the class token in a segment of its own
        own = mask.sum(axis=1, keepdims=True)
        segments, places = np.where(places == own - 1, 2, segments), (places + own) % 12
    read = {"input_ids": tokens.ids, "attention_mask": mask} | ({"token_type_ids": segments} if pairs else {})
    read = {name: np.take_along_axis(value, places, axis=1) for name, value in read.items()}
    shape = (*lengths.shape, 12) if kind == "choice" else (-1, 12)
    with torch.no_grad():
        out = model(**{key: torch.tensor(value.astype(np.int64)).view(shape) for key, value in read.items()})
    batch = task_batch(TASK_KINDS[kind], examples, (len(examples), 12 * lengths.shape[1]), pad_id=0)
    objective = TaskObjective(ours.task, ours.config, ExecutionConfig())
    found = jax.jit(objective.outputs)(ours.params, batch)
    if kind in ("tags", "span"):
        theirs = out.logits if kind == "tags" else torch.stack([out.start_logits, out.end_logits], dim=2)
        np.testing.assert_allclose(found[mask], theirs.numpy()[read["attention_mask"]], atol=1e-5)
    else:
        np.testing.assert_allclose(found[:, 0], out.logits.numpy(), atol=1e-5)
    assert np.std(found, axis=0).min() > 0.01


def test_dropout_that_the_files_cannot_hold_is_left_out_and_said(fine_tuned, tmp_path, capsys):
    ours = fine_tuned("class", model_type="eurobert", **RELATED["eurobert"] | {"dropout": 0.1})
    write_model_directory(tmp_path / "model", *ours[1:], ours.task)
    assert "--model.dropout=0.1 isn't written: to transformers EuroBERT has none" in capsys.readouterr().err
    assert open_model_directory(tmp_path / "model").config.dropout == 0


@pytest.mark.parametrize(
    ("model_type", "kind", "words"),
    [
        ("nomic_bert", "span", "has no class NomicBertForQuestionAnswering"),
        ("bert", "marked", r"has no class with the head of task film \(--task.kind=marked, --task.no-mix-layers\)"),
    ],
)
def test_a_head_without_a_class_there_is_not_exported(fine_tuned, model_type, kind, words, tmp_path):
    ours = fine_tuned(kind, model_type=model_type, **RELATED[model_type])
    with pytest.raises(UsageError, match=f"transformers {words}; use the run itself"):
        write_model_directory(tmp_path / "model", *ours[1:], ours.task)
    assert not hasattr(transformers, "NomicBertForQuestionAnswering") and not (tmp_path / "model").exists()


def test_a_model_with_an_exchanged_vocabulary_gives_our_outputs(tmp_path):
    """RoBERTa's frame has two separators, and its positions are numbered after the padding, whose id changes."""
    old = trained("byte_bpe", 300, tuple(TEXTS) * 3, lowercase=False)
    sizes = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "feedforward_size": 24, "max_positions": 64}
    config = bert_jax.configs.roberta_base.model.replace(vocabulary_size=len(old.vocabulary), **sizes)
    save_model(tmp_path / "old", config, without(init(config, jax.random.key(1)), ["next_sentence"]), old, None)
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in wordpiece(Cleaning()).vocabulary.pieces))
    adapt = bert_jax.configs.adapt.set({"init": str(tmp_path / "old"), "vocabulary.file": str(tmp_path / "vocab.txt")})
    settings = fitted(adapt.set({"vocabulary.initial_rows": "mean"}), OpenedModels())
    assert settings.vocabulary.exchange and settings.model.first_position == 1
    run = RunDirectory(tmp_path / "run")
    new = make_tokenizer(settings, run, existing_tokenizer(settings, OpenedModels())[0], old)
    initial = open_initial(settings, OpenedModels())
    params = initial_parameters(initial, settings, new, make_mesh(settings.mesh))
    model = settings.model.replace(vocabulary_size=len(new.vocabulary))
    write_model_directory(tmp_path / "there", model, jax.device_get(params), new)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "there")
    ids, second = new.encode("jump xx"), new.encode("fox")
    cls, sep = new.vocabulary.cls_id, new.vocabulary.sep_id
    assert theirs("jump xx", "fox")["input_ids"] == [cls, *ids, sep, sep, *second, sep]
    there, _ = loaded("AutoModelForMaskedLM", tmp_path / "there")
    row = np.array([[cls, *ids, sep]])
    with torch.no_grad():
        logits = there(input_ids=torch.tensor(row)).logits.numpy()
    ours, _ = logits_everywhere(model, params, tokens_of(row, 0 * row, 0 * row + 1))
    np.testing.assert_allclose(np.asarray(ours)[..., : len(new.vocabulary)], logits, atol=1e-5)
