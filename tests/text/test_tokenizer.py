"""Tokenizers of every kind, and their directories as a damaged disk or another program leaves them."""

import json
import re

import pytest
from damages import attack
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from trained_tokenizers import KINDS, TEXTS, trained

from bert_jax.batching.sequences import joined
from bert_jax.layout import TokenSequence
from bert_jax.system.errors import UsageError
from bert_jax.text.extension import extend
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer
from bert_jax.text.vocabulary import BOUNDARY, Frame

SENTENCE = "The cat sees [MASK] 山 \u00e9 \u01c5."


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return trained(request.param)


def test_a_batch_is_its_texts(tokenizer):
    texts = ["the foxes", "", "Übungen", "the|dog", "|", *["lazy fox"] * 250]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode("") == [] and tokenizer.encode_batch([]) == []


def test_text_never_gives_special_pieces(tokenizer):
    special = " ".join(tokenizer.vocabulary.pieces[number] for number in tokenizer.vocabulary.special_ids)
    ids = {*tokenizer.encode(f"[CLS] the [MASK] [PAD][SEP]\0 {special}")}
    assert not ids & {*tokenizer.vocabulary.special_ids} - {tokenizer.vocabulary.unknown_id}


def test_spans_point_into_the_text_before_it_is_cleaned(tokenizer):
    text = "  Zwölf  foxes, 中文新闻 JUMPED\u3000 "
    if tokenizer.kind != "byte_bpe":  # of which a composed letter stands at the first of its characters
        text += "Zwo\u0308lf\u200b ガか\u3099 \u1112\u1161\u11ab बच्चे"
    spans = tokenizer.encode_spans(text)
    assert [span.id for span in spans] == tokenizer.encode(text)
    assert all(text[span.begin : span.end].strip() == text[span.begin : span.end] for span in spans)
    places = {place for span in spans for place in range(span.begin, span.end)}
    assert places == {place for place, one in enumerate(text) if not (one.isspace() or one == "\u200b")}
    words = [text[span.begin : span.end] for span in spans if tokenizer.piece_text(span.id) == "foxes"]
    assert words in (["foxes"], [])


def test_masks_stand_for_pieces_where_they_are(tokenizer):
    mask, unknown = tokenizer.vocabulary.mask_id, tokenizer.vocabulary.unknown_id
    the, stop = tokenizer.encode("the"), tokenizer.encode_special("[MASK].")[1:]
    assert tokenizer.encode_special("the [MASK].") == [*the, mask, *stop] and mask not in stop
    assert tokenizer.encode_special("[MASK][MASK] the") == [mask, mask, *the]
    if tokenizer.kind != "byte_bpe":
        assert tokenizer.encode_special("the [MASK]\u9f98[MASK]") == [*the, mask, unknown, mask]
    own = tokenizer.vocabulary.pieces[mask]
    assert tokenizer.encode_special(f"x{own}y") == tokenizer.encode_special("x[MASK]y")
    pieces = [tokenizer.vocabulary.pieces[number] for number in tokenizer.encode_special("中[MASK]文")]
    assert BOUNDARY + "文" not in pieces
    assert tokenizer.encode_special("the foxes") == tokenizer.encode("the foxes")


def test_the_class_token_may_be_last(tokenizer, tmp_path):
    vocabulary, _ = tokenizer.vocabulary, tokenizer.save(tmp_path / "before")
    last = tokenizer.with_class_token("last")
    last.save(tmp_path / "last")
    cls, sep = vocabulary.cls_id, vocabulary.sep_id
    frame = Frame(((), (sep, cls)), ((), (sep,), (sep, cls)), 1)
    extended = extend(last, ["foxtrot"]).tokenizer if tokenizer.kind != "byte_bpe" else last
    for other in (last, load_tokenizer(tmp_path / "last"), last.as_pipeline(), extended, extend(last, [], ["[E]"])[0]):
        assert other.vocabulary.class_token == "last" and other.vocabulary.frame == frame
        assert other.vocabulary.separators == 1 and other.encode("the foxes") == tokenizer.encode("the foxes")
    assert joined([[7, 8], [9]], last.vocabulary, 9) == TokenSequence([7, 8, sep, 9, sep, cls], 3)
    assert vocabulary.class_token == "first" and tokenizer.with_class_token("first") is tokenizer
    last.with_class_token("first").save(tmp_path / "first")
    for name in ("before", "first"):
        assert load_tokenizer(tmp_path / name).vocabulary.class_token == "first"
    written = json.loads((tmp_path / "before" / "tokenizer_config.json").read_text())
    assert "class_token" not in written  # as before there was such a setting


def test_pieces_are_put_together_to_words(tokenizer):
    _, _, cls, sep, mask = tokenizer.vocabulary.special_ids
    ids = [cls, *tokenizer.encode("the foxes jumping"), mask, sep]
    names = [tokenizer.vocabulary.pieces[number] for number in (cls, mask, sep)]
    assert tokenizer.decode(ids) == "{} the foxes jumping {} {}".format(*names)


def test_it_loads_what_it_saves(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    for path in (tmp_path, tmp_path / "tokenizer", tmp_path / "tokenizer" / tokenizer.file_name):
        loaded = load_tokenizer(path)
        assert isinstance(loaded, Tokenizer) and type(loaded) is type(tokenizer)
        assert (loaded.kind, loaded.vocabulary.pieces) == (tokenizer.kind, tokenizer.vocabulary.pieces)
        assert loaded.encode("Zwölf foxes") == tokenizer.encode("Zwölf foxes")


def test_hugging_faces_library_gives_the_same_ids(tokenizer):
    theirs = tokenizer.as_huggingface()
    texts = [*TEXTS[:40], "", "  two  spaces ", "nul\0here", "unknown \u0905\u0906", "x" * 300]
    assert [one.ids for one in theirs.encode_batch(texts, add_special_tokens=False)] == tokenizer.encode_batch(texts)
    assert tokenizer.as_pipeline().encode_batch(texts) == tokenizer.encode_batch(texts)


def test_a_directory_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)


@pytest.fixture
def wordpiece(tmp_path):
    """A tokenizer directory of a WordPiece."""
    trained("wordpiece").save(tmp_path / "wordpiece")
    return tmp_path / "wordpiece"


@pytest.fixture
def unigram(tmp_path):
    """A tokenizer directory of a sentencepiece model."""
    trained("unigram").save(tmp_path / "unigram")
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
    ("kind", "changes", "words"),
    [
        ("wordpiece", {"kind": []}, "kind is []: input should be 'wordpiece'"),
        ("wordpiece", {"kind": "other"}, "kind is 'other'"),
        ("wordpiece", {"lowercase": "yes"}, "lowercase is 'yes': input should be a valid boolean"),
        ("wordpiece", {"strip_accents": 1}, "is 1: input should be a valid boolean"),
        ("wordpiece", {"lowercase": None}, "lowercase is None"),
        ("wordpiece", {"kind": "unigram"}, "kind is 'unigram': input should be 'wordpiece'"),
        ("wordpiece", {"kind": "bytes", "format": 2}, "reads format 1; use the release that wrote it"),
        ("unigram", {"kind": "bpe"}, "is a unigram model and tokenizer_config.json beside it says bpe"),
    ],
)
def test_settings_that_are_not_those_of_the_tokenizer_are_named(kind, changes, words, request):
    directory = request.getfixturevalue(kind)
    path = directory / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    assert settings["format"] == 1
    path.write_text(json.dumps(settings | changes))
    with pytest.raises(UsageError, match=re.escape(words)):
        load_tokenizer(directory)


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
        assert all(0 <= number < len(tokenizer.vocabulary) for number in tokenizer.encode_special(SENTENCE))
        tokenizer.encode_spans(SENTENCE), tokenizer.starts_word, tokenizer.decode(tokenizer.encode(SENTENCE))

    attack(use, directory / name, count=5_000 if slow else 100)
