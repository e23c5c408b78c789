"""Several masks filled together, the probabilities of given words, and the sentences that are masked as examples."""

import jax
import numpy as np
import pytest
from trained_tokenizers import trained

from bert_jax.cli.main import run
from bert_jax.config.model import ModelConfig
from bert_jax.inference.bert import Bert
from bert_jax.inference.filling import masked_examples
from bert_jax.model.bert import init
from bert_jax.system.errors import UsageError
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

TWO = "The old [MASK] sees the [MASK] near house."


def probability(bert, text, piece, mask=0):
    return dict(bert.fill_mask(text, top=1000)[mask])[piece]


def test_several_masks_are_filled_by_the_product_of_their_probabilities_in_turn(bert):
    fills = bert.fill_together(TWO, top=6)
    joints = [joint for _, joint in fills]
    assert len(fills) == 6 and joints == sorted(joints, reverse=True)
    for pieces, joint in fills:
        first, second = pieces
        if not first.startswith("##"):
            after = TWO.replace("[MASK]", first, 1)
            expected = probability(bert, TWO, first) * probability(bert, after, second)
            assert joint == pytest.approx(expected, rel=1e-4)
    assert not all(first.startswith("##") for (first, _), _ in fills)
    by_itself = [([piece], pytest.approx(one)) for piece, one in bert.fill_mask("The [MASK].", top=3)[0]]
    assert bert.fill_together("The [MASK].", top=3) == by_itself


def test_a_beam_misses_nothing_that_is_likelier_than_what_it_finds(bert):
    """Against every pair of pieces."""
    pieces = [piece for piece, _ in bert.fill_mask(TWO, top=1000)[0] if piece.isalpha()]
    best = 0.0
    for text, first in [(TWO.replace("[MASK]", piece, 1), piece) for piece in pieces]:
        best = max(best, probability(bert, TWO, first) * bert.fill_mask(text, top=1)[0][0][1])
    assert bert.fill_together(TWO, top=1)[0][1] >= best * (1 - 1e-4)


def test_the_probability_of_a_word_is_that_of_its_pieces_in_turn(bert):
    text = "The old [MASK] near house."
    single = next(piece for piece, _ in bert.fill_mask(text, top=50)[0] if piece.isalpha())
    several = next(word for word in ("thehouse", "oldcat", "seesnear") if len(bert.tokenizer.encode(word)) > 1)
    found = dict(bert.candidates(text, [single, several]))
    assert found[single] == pytest.approx(probability(bert, text, single), rel=1e-4)
    ids = bert.tokenizer.encode(several)
    logs = []
    for number, piece in enumerate(ids):
        rest = " ".join(["[MASK]"] * (len(ids) - number))
        row = bert._filler._masked_sequence(f"The old {rest} near house.")
        begin = 1 + len(bert.tokenizer.encode("The old"))
        pieces = [*row.ids[:begin], *ids[:number], *row.ids[begin:]]
        filled = row._replace(ids=pieces, first_length=len(pieces))
        vectors = bert._filler._vectors([filled], [begin + number])
        logs.append(bert._filler._log_probabilities_of(vectors, [piece])[0])
    assert found[several] == pytest.approx(float(np.exp(sum(logs))), rel=1e-4)


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        (TWO, ["a"], "has 2 \\[MASK\\]; candidates stand in place of one"),
        ("The [MASK].", [" "], "the candidate ' ' is no text of pieces"),
        ("The [MASK].", ["old " * 40], "positions; shorten it"),
        ("The [MASK]. [SEP]", ["a"], "holds the special pieces .*SEP.*; give a text with"),
    ],
)
def test_candidates_that_cannot_be_judged_are_refused(bert, text, words, expected):
    with pytest.raises(UsageError, match=expected):
        bert.candidates(text, words)


def test_the_command_prints_joint_fills_and_candidates(tiny_run, capsys):
    assert run(["fill-mask", str(tiny_run.path), TWO, "--together", "--top", "2"]) == 0
    shown = capsys.readouterr().out
    assert "joint probability" in shown and len([line for line in shown.splitlines() if line.startswith("│")]) == 2
    assert run(["fill-mask", str(tiny_run.path), "The [MASK].", "--candidates", "old", "house"]) == 0
    words = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert sorted(words) == ["house", "old"]
    assert run(["fill-mask", str(tiny_run.path), TWO, "--together", "--top", "0"]) == 2


@pytest.mark.long
def test_the_space_before_a_word_counts_if_it_is_a_piece_of_its_own(tiny_run):
    tokenizer = trained("unigram", 80)
    config = ModelConfig(num_layers=1, hidden_size=16, num_heads=2, max_positions=32, vocabulary_size=80)
    bert = Bert(config, init(config, jax.random.key(0)), tokenizer)
    word = next(word for word in ("x", "z", "新") if tokenizer.encode(f"a {word}")[-2] == tokenizer.vocabulary.ids["▁"])
    sequence, places = bert._filler._with_word("the [MASK] fox", word)
    assert [tokenizer.vocabulary.pieces[sequence.ids[place]] for place in places] == ["▁", word]
    ((_, one),) = bert.candidates("the [MASK] fox", word)
    assert 0 < one < probability(bert, "the [MASK] fox", "▁")


TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *"river brid ##ge cats a , . 山".split()]))


def test_a_whole_word_of_one_piece_is_masked_the_same_every_time_unless_the_sentence_is_too_long():
    examples = masked_examples(["A River, a bridge.", "a , .", "山 a"], TOKENIZER, 62)
    assert examples == [("A [MASK], a bridge.", "River"), ("[MASK] a", "山")]
    sentences = ["river cats a river , cats ."]
    assert masked_examples(sentences, TOKENIZER, 62) == masked_examples(sentences, TOKENIZER, 62)
    assert masked_examples(["river a river", "river"], TOKENIZER, 2) == [("[MASK]", "river")]
