import pickle
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import program

import bert_jax
from bert_jax.cli.main import run
from bert_jax.config.model import ModelConfig
from bert_jax.config.task import TaskConfig
from bert_jax.inference.bert import Bert
from bert_jax.model.bert import init
from bert_jax.model.task import HeadShape, init_for_task
from bert_jax.run.run_files import RunFiles
from bert_jax.system.errors import UsageError
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.vocabulary_training import train_tokenizer


def with_config(bert, **changes) -> Bert:
    """The model with other settings than those of its parameters."""
    return Bert(bert.config.replace(**changes), bert.params, bert.tokenizer)


def test_masks_are_filled_in_order_with_probabilities(bert):
    fills = bert.fill_mask("The old [MASK] sees the [MASK] near house.", top=7)
    assert len(fills) == 2 and all(len(one) == 7 for one in fills)
    for one in fills:
        probabilities = [probability for _, probability in one]
        assert probabilities == sorted(probabilities, reverse=True) and 0 < sum(probabilities) < 1
        assert all(piece in bert.tokenizer.vocabulary.ids for piece, _ in one)
    everything = bert.fill_mask("The [MASK].", top=1000)[0]
    assert len(everything) == len(bert.tokenizer.vocabulary)
    assert sum(probability for _, probability in everything) == pytest.approx(1, abs=1e-5)


def test_pieces_of_bytes_are_spelled_for_people():
    texts = ["Straßen und Häuser, naïve cafés"] * 9
    tokenizer = train_tokenizer(texts, "byte_bpe", 275, Cleaning(False, False))
    config = ModelConfig(num_layers=1, hidden_size=16, num_heads=2, max_positions=16, vocabulary_size=275)
    fills = Bert(config, init(config, jax.random.key(0)), tokenizer).fill_mask("und [MASK]", top=275)[0]
    assert any(piece.startswith("▁") for piece, _ in fills) and not any("Ġ" in piece for piece, _ in fills)


@pytest.mark.parametrize(
    "ask, words",
    [
        (lambda bert: bert.fill_mask("no mask"), "there is no [MASK]"),
        (lambda bert: bert.fill_mask("word " * 40 + "[MASK]"), "tokens and the model 32 positions"),
        (lambda bert: [*bert.encode_stream(iter([("a", "b", "c")]))], "give a text or a pair of texts"),
        (lambda bert: with_config(bert, vocabulary_size=151), "has 150 pieces and the model 151"),
        (lambda bert: bert_jax.load(Path(__file__).parent), "holds no finished checkpoint"),
    ],
)
def test_what_cannot_be_asked_is_refused(bert, ask, words):
    with pytest.raises(UsageError) as refusal:
        ask(bert)
    assert words in str(refusal.value)


def test_a_causal_model_attends_to_the_left_and_fills_no_mask(bert):
    causal = with_config(bert, causal=True)
    with pytest.raises(UsageError, match="the model is causal .* trained with --objective.predict=masked"):
        causal.fill_mask("The [MASK].")
    attention = causal.attention("The old cat")
    assert (attention == np.tril(attention)).all()


def test_several_texts_are_filled_as_each_alone(bert):
    texts = [f"The {word} [MASK] sees" + " the [MASK]" * count for count, word in enumerate(["old", "cat", "new"])]
    together = bert.fill_mask([*texts, *texts[::-1]], top=3)
    assert [len(fills) for fills in together] == [1, 2, 3, 3, 2, 1]
    for fills, text in zip(together, [*texts, *texts[::-1]]):
        alone = bert.fill_mask(text, top=3)
        assert [[piece for piece, _ in one] for one in fills] == [[piece for piece, _ in one] for one in alone]
        np.testing.assert_allclose([p for one in fills for _, p in one], [p for one in alone for _, p in one], 1e-4)


def test_a_text_has_the_same_vectors_alone_and_among_others(bert):
    texts = ["The old cat.", "The bright river crosses the broken bridge near the old house number 7.", ""] * 10
    together = bert.encode(texts)
    assert together.tokens.shape[:2] == together.mask.shape and together.pooled.shape == (30, 32)
    for number, text in enumerate(texts[:5]):
        alone = bert.encode([text])
        size = int(together.mask[number].sum())
        assert size == len(bert.tokenizer.encode(text)) + 2 == alone.mask.shape[1]
        assert together.mask[number, :size].all() and not together.tokens[number, size:].any()
        np.testing.assert_allclose(together.tokens[number, :size], alone.tokens[0], atol=2e-6)
        np.testing.assert_allclose(together.pooled[number], alone.pooled[0], atol=2e-6)


def test_a_pair_has_a_separator_more(bert):
    pair, joined = ("The old cat.", "It sees the dog."), "The old cat. It sees the dog."
    sizes = [len(bert.tokenizer.encode(joined)) + extra for extra in (3, 2)]
    assert bert.encode([pair, joined]).mask.sum(axis=1).tolist() == sizes
    attention = bert.attention(pair)
    assert attention.shape == (2, 2, sizes[0], sizes[0])
    np.testing.assert_allclose(attention.sum(axis=-1), 1, atol=1e-5)


def test_a_stream_gives_what_encode_gives_in_its_order(bert):
    texts = [" ".join(["The cat sees"] * (1 + number % 7)) + f" number {number}." for number in range(70)]
    batches = list(bert.encode_stream(iter(texts), batch_size=32))
    assert [len(batch.pooled) for batch in batches] == [32, 32, 6]
    together = bert.encode(texts)
    np.testing.assert_allclose(np.concatenate([batch.pooled for batch in batches]), together.pooled, atol=2e-6)
    sizes = np.concatenate([batch.mask.sum(axis=1) for batch in batches])
    assert sizes.tolist() == together.mask.sum(axis=1).tolist()
    assert [batch.mask.shape[1] for batch in batches] == [batch.mask.sum(axis=1).max() for batch in batches]
    assert [array.shape for array in bert.encode([])] == [(0, 0, 32), (0, 32), (0, 0)]
    assert list(bert.encode_stream([])) == list(bert.features([])) == bert.fill_mask([]) == []


@pytest.mark.long
def test_texts_too_long_are_cut_and_counted(bert, capsys):
    assert bert.encode(["cat " * 50, "dog", ("cat " * 20, "dog " * 20)]).tokens.shape[1] == 32
    assert capsys.readouterr().err == "2 of 3 texts are longer than 32 tokens and were cut\n"
    assert len(list(bert.encode_stream(["cat " * 50, "dog"] * 600))) == 19
    assert capsys.readouterr().err == "600 of 1,200 texts are longer than 32 tokens and were cut\n"
    list(bert.features(["cat " * 50, "dog"]))
    assert capsys.readouterr().err == "1 of 2 texts are longer than 32 tokens and were cut\n"
    bert.encode(["dog"])
    assert not capsys.readouterr().err


def test_a_checkpoint_loads_like_its_run(bert, tiny_run):
    one = bert_jax.load(tiny_run.checkpoints / "00000012")
    assert one.fill_mask("The [MASK].") == bert.fill_mask("The [MASK].")
    other = bert_jax.load(tiny_run.checkpoints / "00000008")
    assert other.fill_mask("The [MASK].") != bert.fill_mask("The [MASK].")
    assert bert_jax.load_tokenizer(tiny_run.path).vocabulary.pieces == bert.tokenizer.vocabulary.pieces


def test_inference_on_a_cpu_is_in_float32_unless_set(bert, tiny_run, monkeypatch):
    monkeypatch.setenv("BERT_JAX_AUTO_DTYPE", "bfloat16")  # as on a CPU that multiplies bfloat16 fast
    text = "The old cat sees the [MASK]."
    assert bert_jax.load(tiny_run.path).fill_mask(text) == bert.fill_mask(text)
    half = bert_jax.load(tiny_run.path, dtype="bfloat16")
    assert 1e-4 < np.abs(half.encode([text]).tokens - bert.encode([text]).tokens).max() < 0.1
    with pytest.raises(UsageError, match="dtype=float16 .* auto, float32, bfloat16"):
        bert_jax.load(tiny_run.path, dtype="float16")


@pytest.mark.long
def test_changed_parameters_are_saved_as_a_run_that_commands_take(bert, tiny_run, tmp_path, capsys):
    changed = Bert(bert.config, jax.tree.map(lambda leaf: leaf * 1.01, bert.params), bert.tokenizer)
    path = tmp_path / "saved"
    changed.save(path)
    again = bert_jax.load(path)
    text = "The old [MASK] sees."
    assert again.fill_mask(text) == changed.fill_mask(text) != bert.fill_mask(text)
    np.testing.assert_array_equal(again.encode([text]).tokens, changed.encode([text]).tokens)
    (tmp_path / "lines.txt").write_text("The old cat.\nA house.\n")
    (tmp_path / "rows.tsv").write_text("text\tlabel\nThe old cat.\ta\nA house.\tb\n")
    quick = ["--task.train", tmp_path / "rows.tsv", "--task.epochs", 1, "--task.max-length", 16]
    for command in (
        ["verify", path],
        ["fill-mask", path, text],
        ["export", path, tmp_path / "exported"],
        ["features", path, tmp_path / "lines.txt", tmp_path / "vectors.npz"],
        ["score", path, tmp_path / "lines.txt"],
        ["finetune", "classes", "--init", path, "--workdir", tmp_path / "tuned", *quick, "--dry-run"],
    ):
        assert run([*map(str, command)]) == 0, (command, capsys.readouterr().err)
    assert bert_jax.load(tmp_path / "exported").fill_mask(text) == again.fill_mask(text)
    with pytest.raises(UsageError, match="was imported from a program and can't be trained on itself"):
        bert_jax.pretrain(RunFiles(path).config, path)


@pytest.mark.long
def test_a_model_of_a_task_and_one_of_vectors_are_saved(bert, vectors_run, tmp_path):
    vectors = bert_jax.load(vectors_run.path)
    vectors.save(tmp_path / "vectors")
    np.testing.assert_array_equal(bert_jax.load(tmp_path / "vectors").embed(["A cat."]), vectors.embed(["A cat."]))
    task = TaskConfig(name="texts", kind="class", texts=("text",), labels=("a", "b"), max_length=16)
    classifier = Bert(
        bert.config, init_for_task(bert.config, HeadShape.of(task), jax.random.key(0)), bert.tokenizer, task
    )
    classifier.save(tmp_path / "classes")
    assert bert_jax.load(tmp_path / "classes").predict(["A cat."]) == classifier.predict(["A cat."])


def test_a_model_is_not_saved_over_files_or_with_parameters_of_another(bert, tiny_run, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for path in (tmp_path, tiny_run.path):
        with pytest.raises(UsageError, match="exists already; choose another place"):
            bert.save(path)
    with pytest.raises(UsageError, match="its parameters aren't those of its config.json"):
        with_config(bert, hidden_size=64).save(tmp_path / "wider")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.long
def test_a_pickled_model_gives_equal_outputs_in_another_process(bert, vectors_run, tmp_path):
    bert.encode(["A cat."]), bert.fill_mask("A [MASK].")  # compiled programs are not pickled
    (tmp_path / "bert.pickle").write_bytes(pickle.dumps(bert))
    script = (
        "import pickle, sys, numpy\n"
        "bert = pickle.load(open(sys.argv[1], 'rb'))\n"
        "numpy.save(sys.argv[2], bert.encode(['The old cat.', 'A house.']).tokens)\n"
    )
    assert program(script, tmp_path / "bert.pickle", tmp_path / "vectors.npy").wait() == 0
    found = np.load(tmp_path / "vectors.npy")
    np.testing.assert_array_equal(found, bert.encode(["The old cat.", "A house."]).tokens)
    vectors = bert_jax.load(vectors_run.path)
    again = pickle.loads(pickle.dumps(vectors))
    np.testing.assert_array_equal(again.embed(["A cat."]), vectors.embed(["A cat."]))
    assert again.task == vectors.task and again.steps == vectors.steps


def test_what_a_notebook_shows_is_a_few_lines(bert, tiny_config, tiny_run):
    shown = repr(bert)
    assert len(shown.splitlines()) == 3 and "2 layers, 32 wide, 32 positions, steps [12]" in shown
    assert "wordpiece, 150 pieces" in shown and "task: None" in shown
    config, results = repr(tiny_config), tiny_run.results(12)
    assert len(config.splitlines()) < 16 and "phases=(Phase(steps=12, length=32, batch_size=8),)," in config
    assert "seed" not in config and repr(tiny_config.model) == str(tiny_config.model)
    rows = [" ".join(row.split()) for row in repr(results).splitlines()]
    assert rows[0] == "Results: pretraining, 12 steps" and len(rows) < 14
    baseline = results.baseline["mlm_accuracy"]
    assert f"mlm_accuracy {results.mlm_accuracy:.4f} (baseline {baseline:.4f})" in rows
