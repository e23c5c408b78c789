import gzip
import itertools
import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_jax.instances.sentences import encode_documents
from bert_jax.system.errors import UsageError
from bert_jax.text.cleaning import ORIGINAL, Cleaning
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

PIECES = [*SPECIAL_PIECES, *"un ##aff ##able hello world ! , ö é 中 a ##a [ ] mask".split()]


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


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_ids_are_the_originals(reference, name):
    golden = json.loads((reference / f"reference/tokenization-{name}.json").read_text(encoding="utf-8"))
    vocabulary = Vocabulary.read(reference / f"reference/vocab-{name}.txt")
    tokenizer = WordPieceTokenizer(vocabulary, Cleaning.of_file(golden["lowercase"]))
    assert len(golden["cases"]) == 33
    for case in golden["cases"]:
        assert tokenizer.encode(case["text"]) == case["ids"], case["text"]
    # And as text is prepared: cut into parts that are encoded once each.
    prepared = encode_documents([[case["text"] for case in golden["cases"]]], tokenizer)
    assert prepared.tokens.tolist() == [number for case in golden["cases"] for number in case["ids"]]


MASKED = "原来都，千装山林宿为生智神以这雪。济料"
NUMBERS = "1334 3342 6964 8025 1284 6164 2256 3361 2163 712 4496 3256 4869 810 6822 7435 512 3846 3161".split()
PLACES = [2, 3, 8, 26, 30, 34, 38, 39, 48, 58, 60, 77, 83, 88, 105, 111, 114, 116, 119]  # printed with 57 for 58
FIRST = "原来济南的雪都下在了这里，跑马岭位于济南南部山区，海拔近千米。"
SECOND = (
    "装素裹的山林云雾飘渺，山中民宿木屋格外精致，不用为了生计去砍树赚钱，更不用与熊大熊二斗智斗勇费心劳神，"
    "在这可以像光头强一样惬意的蜗居一天，享受这段美好的冰雪奇缘。#济南爆料##忍不住想拍的"
)


def test_he_and_xus_example_has_their_numbers(reference, tmp_path):
    """He and Xu (2020), sections 3 and 4: a sequence of 128 pieces, 19 of them masked; they count from one."""
    packed = (reference / "data/bert/vocab-chinese.txt.gz").read_bytes()
    (tmp_path / "vocab.txt").write_bytes(gzip.decompress(packed))
    tokenizer = load_tokenizer(tmp_path / "vocab.txt", lowercase=True)
    assert tokenizer.encode(MASKED) == [int(number) - 1 for number in NUMBERS]
    sequence = ["[CLS]", *pieces(tokenizer, FIRST), "[SEP]", *pieces(tokenizer, SECOND), "[SEP]"]
    assert len(sequence) == 128
    assert [sequence[place - 1] for place in PLACES] == list(MASKED)


CHARACTERS = st.sampled_from("a un hello !,.[]<=-中é\u0301\u0338\x00\x1c\t\n|\u3000Σ")
ANY_TEXTS = st.lists(st.text(st.one_of(st.characters(codec="utf-8"), CHARACTERS)))


@pytest.mark.parametrize(
    "cleaning", [ORIGINAL, Cleaning.of_training()._replace(turkish=True), Cleaning(False, False, "NFKC")]
)
@given(ANY_TEXTS)
@settings(deadline=None)
@example(["a" * 450, "a" * 150 + "|", "a\u200ba I\u0307", "b" * 201 + " a"])
@example(["=\u0301\u0338a", "a ｜ un", "hello"])
@example(["a\x1ca\u3000a \u0301a!\u0338", "\u0301a", "a\n\na \n", "a<\u0338a"])
def test_neither_cuts_nor_batches_change_a_piece(cleaning, texts):
    tokenizer = WordPieceTokenizer(Vocabulary([*PIECES, "<", "≮", "=", "≠"]), cleaning)
    expected = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts) == expected
    for cut in tokenizer.cuts:
        ids = [[]]
        for part in cut(texts):
            ids.append([]) if part == "\n" else ids[-1].extend(tokenizer.encode(part))
        assert ids == [*expected, []]
    prepared = encode_documents([texts], tokenizer)
    kept = [ids for ids in expected if ids]
    assert [part.tolist() for part in np.split(prepared.tokens, prepared.ends[1:-1])] == (kept or [[]])


def test_a_long_word_of_a_vocabulary_that_is_trained_here_is_cut_before_a_letter():
    cutting = WordPieceTokenizer(Vocabulary([*PIECES, "##é", "##\u0301"]), Cleaning.of_training(strip_accents=False))
    assert pieces(cutting, "a" * 401) == [*["a", *["##a"] * 199] * 2, "a"]
    marked = "a" * 198 + "aq\u0301" + "a"  # no letter is q with an acute
    spans = cutting.encode_spans(marked)
    assert len(spans) == 200 and spans[-1] == (cutting.vocabulary.unknown_id, 199, 202)  # not all 202 characters
    theirs = cutting.as_huggingface()
    for text in ("a" * 401, marked, "a" * 300 + " hello"):
        assert theirs.encode(text, add_special_tokens=False).ids == cutting.encode(text)


@pytest.mark.parametrize("first, is_refused", [("a", True), ("α", True), ("ⲁ", False), ("ა", False)])
def test_letters_without_capitals_contradict_kept_case_only_in_scripts_that_use_capitals(first, is_refused):
    letters = [chr(ord(first) + number) for number in range(0, 24, 2)]  # Coptic has a capital between two letters
    words = ["".join(word) for word in itertools.islice(itertools.product(letters, repeat=3), 1200)]
    vocabulary = Vocabulary([*SPECIAL_PIECES, *words])
    if is_refused:
        with pytest.raises(UsageError, match="no piece of the vocabulary has a capital, which text has"):
            WordPieceTokenizer(vocabulary, Cleaning.of_file(lowercase=False))
    else:
        tokenizer = WordPieceTokenizer(vocabulary, Cleaning.of_file(lowercase=False))
        assert pieces(tokenizer, words[7]) == [words[7]]


def test_a_directory_keeps_the_treatment_of_text(tmp_path):
    for cleaning in (
        Cleaning(False, True),
        Cleaning(True, "cased", "NFKC"),
        Cleaning(True, "cased", "NFC", True, True),
    ):
        WordPieceTokenizer(Vocabulary(PIECES), cleaning).save(tmp_path / "tokenizer")
        loaded = load_tokenizer(tmp_path)
        assert (loaded.cleaning, loaded.vocabulary.pieces) == (cleaning, tuple(PIECES))
    settings = json.loads((tmp_path / "tokenizer" / "tokenizer_config.json").read_text())
    del settings["divides_words"], settings["turkish"]  # as earlier releases wrote it
    (tmp_path / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(settings))
    assert load_tokenizer(tmp_path).encode("hello\u200bworld " + "a" * 201) == [1, 1]
    assert load_tokenizer(tmp_path / "tokenizer" / "vocab.txt", lowercase=True).cleaning == ORIGINAL


def test_a_full_width_bar_does_not_shift_the_texts_after_it():
    tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *"abcd|"]), Cleaning(form="NFKC"))
    texts = ["a ｜ b", "c", "d"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts] == [[5, 9, 6], [7], [8]]
    assert encode_documents([["a ｜ b c"], ["d c"]], tokenizer).tokens.tolist() == [5, 9, 6, 7, 8, 7]
