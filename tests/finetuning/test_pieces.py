import pytest

from bert_jax.finetuning.pieces import characters_of, pieces_of

TEXTS = [
    ("the cat sees dogs.", "cat sees"),
    ("the cat sees dogs.", "dogs"),
    ("in 東京大学, where", "大学"),
    ("in 東京大学, where", "東京大学"),
    ("a cafe\u0301 in the house", "cafe\u0301"),
    ("a café in", "café"),
    ("the cafe\u0301", "cafe\u0301"),
    ("a\u200b  cat\x00 sees", "cat"),
    ("𝒳 the cat", "the"),
    ("İ cat", "cat"),
]


@pytest.mark.parametrize("text, answer", TEXTS)
def test_characters_become_pieces_and_the_same_characters_again(tokenizer, text, answer):
    spans, begin = tokenizer.encode_spans(text), text.index(answer)
    assert [piece.id for piece in spans] == tokenizer.encode(text)
    found = pieces_of(spans, begin, begin + len(answer))
    assert text[slice(*characters_of(text, spans, found.start, found.stop - 1))] == answer


def test_characters_without_pieces_have_none(tokenizer):
    spans = tokenizer.encode_spans("cat \u200b\u200b dog")
    assert bool(pieces_of(spans, 4, 6)) == (tokenizer.kind == "byte_bpe")  # which has pieces for all characters
    assert pieces_of(spans, 3, 8)


def test_a_part_of_a_piece_is_all_of_it(wordpiece):
    spans = wordpiece.encode_spans("the dogs")
    assert pieces_of(spans, 5, 6) == range(1, 2) and pieces_of(spans, 7, 8) == range(2, 3)
