import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer, train_wordpiece

PIECES = [*SPECIAL_PIECES, *"un ##aff ##able hello world ! , ö é 中 a ##a [ ] mask".split()]
TEXTS = [
    "The quick brown fox jumps over the lazy dog, again and again. " * 20,
    "Zwölf größere Übungen für 中文 и русский. " * 20,
]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(Vocabulary(PIECES))


def pieces(tokenizer, text):
    return [tokenizer.vocabulary.pieces[number] for number in tokenizer.encode(text)]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("unaffable", "un ##aff ##able"),
        ("UNaffable, HELLO!", "un ##aff ##able , hello !"),
        ("hello\u00a0world\u200b", "hello world"),
        ("中中", "中 中"),
        ("hello\x00wor\ufffdld", "[UNK]"),
        ("helloz", "[UNK]"),
        ("a" * 200, "a " + "##a " * 199),
        ("a" * 201, "[UNK]"),
        ("[MASK]", "[ mask ]"),
        ("", ""),
    ],
)
def test_text_is_split_as_the_original_does(tokenizer, text, expected):
    assert pieces(tokenizer, text) == expected.split()


def test_accents_go_with_the_case_unless_told(tokenizer):
    keeps = WordPieceTokenizer(Vocabulary(PIECES), lowercase=False)
    assert pieces(tokenizer, "é") == ["[UNK]"]  # e is no piece
    assert pieces(keeps, "é") == ["é"]
    assert pieces(keeps, "HELLO") == ["[UNK]"]
    assert pieces(WordPieceTokenizer(Vocabulary(PIECES), lowercase=True, strip_accents=False), "É") == ["é"]


def test_words_are_known_and_put_together(tokenizer):
    ids = tokenizer.encode("unaffable world")
    assert tokenizer.starts_word[ids].tolist() == [True, False, False, True]
    assert tokenizer.decode(ids) == "unaffable world"


def test_spans_point_into_the_text(tokenizer):
    text = "  UNaffable wörld hello"
    spans = tokenizer.encode_spans(text)
    assert [text[span.begin : span.end] for span in spans] == ["UN", "aff", "able", "wörld", "hello"]


def test_a_batch_is_its_texts(tokenizer):
    texts = ["hello world", "", "unaffable"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


@given(
    st.text(
        st.one_of(st.characters(codec="utf-8"), st.sampled_from("a un hello !,.[]-中é\u0301\u0338\x00\x1c\t\u3000"))
    )
)
@settings(deadline=None)
@example("a\x1ca\u3000a \u0301a!\u0338")
def test_cuts_change_no_piece(tokenizer, text):
    parts = [text]
    for cut in tokenizer.cuts:
        parts = [part for whole in parts for part in cut(whole)]
        assert [number for part in parts for number in tokenizer.encode(part)] == tokenizer.encode(text)


def test_it_loads_what_it_saves(tmp_path):
    WordPieceTokenizer(Vocabulary(PIECES), lowercase=False, strip_accents=True).save(tmp_path / "tokenizer")
    for path in (tmp_path, tmp_path / "tokenizer"):
        loaded = load_tokenizer(path)
        assert (loaded.lowercase, loaded.strip_accents, loaded.vocabulary.pieces) == (False, True, tuple(PIECES))
    assert load_tokenizer(tmp_path / "tokenizer" / "vocab.txt", lowercase=True).lowercase


def test_a_directory_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)


def train(size, **settings):
    return train_wordpiece(
        TEXTS, size, **{"lowercase": True, "strip_accents": None, "character_coverage": 1.0} | settings
    )


def test_a_trained_vocabulary_has_the_asked_size_and_covers_the_text():
    vocabulary = train(110)
    assert len(vocabulary) == 110
    assert vocabulary.pieces[:5] == SPECIAL_PIECES
    tokenizer = WordPieceTokenizer(vocabulary)
    assert vocabulary.unknown_id not in [number for text in TEXTS for number in tokenizer.encode(text)]
    assert "##中" not in vocabulary.ids and "##," not in vocabulary.ids  # they always stand alone


def test_training_is_the_same_in_every_process():
    code = (
        "from bert_jax.text.wordpiece import train_wordpiece; "
        f"print(train_wordpiece({TEXTS!r}, 110, lowercase=True, strip_accents=None, character_coverage=1.0).pieces)"
    )
    seen = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(3)}
    assert seen == {f"{train(110).pieces}\n".encode()}


def test_rare_characters_become_unknown():
    common = train(90, character_coverage=0.95)
    assert "中" not in common.ids and "e" in common.ids


@pytest.mark.parametrize("size, words", [(20, "less than the"), (5000, "more than the text can give")])
def test_a_size_that_cannot_be_is_refused(size, words):
    with pytest.raises(UsageError, match=words):
        train(size)


def test_a_word_of_a_million_letters_takes_no_part_in_training():
    texts = ["some words and some more words"] * 3
    train = lambda texts: train_wordpiece(texts, 24, lowercase=True, strip_accents=None, character_coverage=1.0).pieces  # noqa: E731
    letters = "somewrdan" * 100_000
    assert train([*texts, letters]) == train([*texts, ""])
