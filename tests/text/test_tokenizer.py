"""Tokenizer directories of ours, as a damaged disk or another program leaves them."""

import json

import pytest
from damages import attack
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from bert_jax.system.errors import UsageError
from bert_jax.text.sentencepiece_training import train_sentencepiece
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

SENTENCE = "The cat sees [MASK] 山 \u00e9 \u01c5."


@pytest.fixture
def wordpiece(tmp_path):
    """A tokenizer directory of a WordPiece."""
    WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *"abcdefgh", "##s"])).save(tmp_path / "wordpiece")
    return tmp_path / "wordpiece"


@pytest.fixture(scope="module")
def trained():
    text = ["the old cat sees the bright river near the quiet garden " * 3, "a dog finds a stone in the window"]
    settings = {"lowercase": True, "strip_accents": None, "character_coverage": 1.0}
    return train_sentencepiece(text, 32, kind="unigram", **settings)


@pytest.fixture
def unigram(trained, tmp_path):
    """A tokenizer directory of a sentencepiece model."""
    trained.save(tmp_path / "unigram")
    return tmp_path / "unigram"


@pytest.fixture
def uncleaned(unigram):
    """The same without its rules for cleaning text, which are 99% of the file."""
    path = unigram / "tokenizer.model"
    model = ModelProto.FromString(path.read_bytes())
    model.normalizer_spec.precompiled_charsmap = b""
    path.write_bytes(model.SerializeToString())
    return unigram


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": []}, "kind is []: input should be 'wordpiece', 'unigram', 'bpe', 'byte_bpe' or 'metaspace'"),
        ({"kind": "other"}, "kind is 'other'"),
        ({"lowercase": "yes"}, "lowercase is 'yes': input should be a valid boolean"),
        ({"strip_accents": 1}, "strip_accents is 1"),
        ({"kind": "unigram"}, "tokenizer.model can't be read"),
    ],
)
def test_settings_of_another_type_are_named(wordpiece, changes, words):
    path = wordpiece / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UsageError) as refusal:
        load_tokenizer(wordpiece)
    assert words in str(refusal.value)


@pytest.mark.parametrize("name", ["lowercase", "strip_accents"])
def test_a_missing_setting_is_named(wordpiece, name):
    path = wordpiece / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings[name]
    path.write_text(json.dumps(settings))
    with pytest.raises(UsageError, match=f"it has no {name}"):
        load_tokenizer(wordpiece)


def test_a_directory_of_another_release_is_refused(wordpiece):
    path = wordpiece / "tokenizer_config.json"
    assert json.loads(path.read_text())["format"] == 1
    path.write_text(json.dumps({"kind": "bytes", "format": 2}))
    with pytest.raises(UsageError, match="has format 2 .* reads format 1; use the release that wrote it"):
        load_tokenizer(wordpiece)


def test_a_kind_that_is_not_that_of_the_model_is_refused(unigram):
    (unigram / "tokenizer_config.json").write_text('{"kind": "bpe", "format": 1}')
    with pytest.raises(UsageError, match="is a unigram model and tokenizer_config.json beside it says bpe"):
        load_tokenizer(unigram)


def test_pieces_that_are_not_utf_8_are_refused(unigram):
    path = unigram / "tokenizer.model"
    path.write_bytes(path.read_bytes().replace("\u2581".encode(), b"\xff\xff\xff", 1))
    with pytest.raises(UsageError, match="not UTF-8"):
        load_tokenizer(unigram)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("wordpiece", "tokenizer_config.json"),
        ("wordpiece", "vocab.txt"),
        ("unigram", "tokenizer_config.json"),
        ("unigram", "tokenizer.model"),
        ("uncleaned", "tokenizer.model"),
    ],
)
def test_a_damaged_directory_is_refused_in_a_line_or_works(kind, name, request, slow):
    directory = request.getfixturevalue(kind)

    def use():
        tokenizer = load_tokenizer(directory)
        assert all(0 <= number < len(tokenizer.vocabulary) for number in tokenizer.encode_masked(SENTENCE))
        tokenizer.encode_spans(SENTENCE), tokenizer.starts_word, tokenizer.decode(tokenizer.encode(SENTENCE))

    attack(use, directory / name, count=5_000 if slow else 100)
