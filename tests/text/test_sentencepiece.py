import subprocess
import sys

import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from bert_jax.system.errors import UsageError
from bert_jax.text.sentencepiece import BOUNDARY, SentencePieceTokenizer
from bert_jax.text.sentencepiece_huggingface import as_huggingface
from bert_jax.text.sentencepiece_training import count_words, train_sentencepiece
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer
from bert_jax.text.vocabulary import SPECIAL_PIECES

WORDS = (
    "the quick brown fox foxes jumped jumping over lazy dogs dog again Zwölf größere Übungen für neue Größen".split()
)
TEXTS = [
    *(
        f"{first} {second}, ({third}) x{first}. 中文新闻，中文报纸。"
        for first in WORDS
        for second in WORDS
        for third in WORDS[::5]
    ),
    "[MASK] x[MASK]y [CLS][SEP] [MASK]\0" * 50,
]


FEW_TEXTS = [" ".join(WORDS)] * 9


def train(kind="unigram", size=80, texts=TEXTS, **settings):
    cleaning = {"lowercase": True, "strip_accents": None, "character_coverage": 1.0}
    return train_sentencepiece(texts, size, kind=kind, **cleaning | settings)


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request):
    return train(request.param)


def test_a_trained_model_has_the_asked_size_and_the_special_pieces_first(tokenizer):
    assert isinstance(tokenizer, Tokenizer)
    assert len(tokenizer.vocabulary) == 80 and tokenizer.vocabulary.pieces[:5] == SPECIAL_PIECES
    assert tokenizer.vocabulary.special_ids == (0, 1, 2, 3, 4)


def test_training_is_the_same_in_every_process(tmp_path):
    code = (
        "from pathlib import Path; from bert_jax.text.sentencepiece_training import train_sentencepiece; "
        f"made = train_sentencepiece({FEW_TEXTS!r}, 44, kind='unigram', lowercase=True, strip_accents=None, "
        f"character_coverage=1.0); made.write_vocabulary(Path({str(tmp_path / 'other')!r}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    train(size=44, texts=FEW_TEXTS).write_vocabulary(tmp_path / "this")
    assert (tmp_path / "this").read_bytes() == (tmp_path / "other").read_bytes()


def test_text_never_gives_special_pieces(tokenizer):
    ids = tokenizer.encode("[CLS] the [MASK] [PAD][SEP]\0")
    assert not set(ids) & {0, 2, 3, 4}
    assert "[mask]" in tokenizer.decode(ids)


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, "großere zwolf ubungen"),
        ({"lowercase": True, "strip_accents": False}, "größere zwölf übungen"),
        ({"lowercase": False}, "größere Zwölf Übungen"),
        ({"lowercase": False, "strip_accents": True}, "großere Zwolf Ubungen"),
    ],
)
def test_cleaning_is_part_of_the_model(settings, expected):
    trained = train(**settings)
    text = "größere\u00a0Zwo\u0308lf\u200b \x00Übungen"
    assert trained.decode(trained.encode(text)) == expected
    assert trained.vocabulary.unknown_id not in trained.encode(text)


def test_spans_point_into_the_text(tokenizer):
    text = "  Zwo\u0308lf\u200b  foxes, 中文新闻 JUMPED\u3000 "
    spans = tokenizer.encode_spans(text)
    assert [span.id for span in spans] == tokenizer.encode(text)
    assert all(text[span.begin : span.end].strip() == text[span.begin : span.end] for span in spans)
    joined = "".join(text[span.begin : span.end] for span in spans)
    assert joined == "Zwo\u0308lffoxes,中文新闻JUMPED"
    words = [text[span.begin : span.end] for span in spans if tokenizer.piece_text(span.id) == "foxes"]
    assert words in (["foxes"], [])


def test_a_batch_is_its_texts(tokenizer):
    texts = ["the foxes", "", "Übungen"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode("") == []


def test_words_begin_at_boundaries_punctuation_and_ideographs(tokenizer):
    for number, (piece, starts) in enumerate(zip(tokenizer.vocabulary.pieces, tokenizer.starts_word)):
        letter = piece[:1].isalpha() and piece[0] < "\u3000"
        assert starts == (number < 5 or not letter), piece
    assert BOUNDARY in tokenizer.vocabulary.ids and tokenizer.starts_word[tokenizer.vocabulary.ids[BOUNDARY]]


def test_masks_stand_for_pieces_where_they_are(tokenizer):
    def pieces(text):
        return [tokenizer.vocabulary.pieces[number] for number in tokenizer.encode_masked(text)]

    the = pieces("the")
    assert pieces("the [MASK].") == [*the, "[MASK]", "."]
    assert pieces("[MASK][MASK] the") == ["[MASK]", "[MASK]", *the]
    assert pieces("the [MASK]\u9f98[MASK]") == [*the, "[MASK]", "[UNK]", "[MASK]"]
    assert BOUNDARY + "文" not in pieces("中[MASK]文")
    assert tokenizer.encode_masked("the foxes") == tokenizer.encode("the foxes")


def test_pieces_are_put_together_to_words(tokenizer):
    ids = [2, *tokenizer.encode("the foxes, jumping"), 4, 3]
    assert tokenizer.decode(ids) == "[CLS] the foxes, jumping [MASK] [SEP]"


def test_it_loads_what_it_saves(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    for path in (tmp_path, tmp_path / "tokenizer", tmp_path / "tokenizer" / "tokenizer.model"):
        loaded = load_tokenizer(path)
        assert (loaded.kind, loaded.vocabulary.pieces) == (tokenizer.kind, tokenizer.vocabulary.pieces)
        assert loaded.encode("Zwölf foxes") == tokenizer.encode("Zwölf foxes")


def renamed(tokenizer, names) -> bytes:
    model = ModelProto.FromString(tokenizer._model.SerializeToString())
    for piece, name in zip(model.pieces, names):
        piece.piece = name
        if name == "<mask>":
            piece.type = ModelProto.SentencePiece.USER_DEFINED
    model.trainer_spec.unk_piece = names[1]
    return model.SerializeToString()


def test_special_pieces_of_a_given_model_are_found_by_name(tokenizer, tmp_path):
    path = tmp_path / "given.model"
    path.write_bytes(renamed(tokenizer, ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]))
    given = load_tokenizer(path)
    assert given.vocabulary.special_ids == (0, 1, 2, 3, 4)
    assert 4 not in given.encode("<mask> the")
    assert given.encode_masked("the [MASK]")[-1] == 4


def test_a_model_without_special_pieces_is_refused(tokenizer, tmp_path):
    path = tmp_path / "given.model"
    path.write_bytes(renamed(tokenizer, ["<pad>", "<unk>", "<s>", "</s>", "mask"]))
    with pytest.raises(UsageError, match=r"given.model lacks \[MASK\]"):
        load_tokenizer(path)


@pytest.mark.parametrize("content, words", [(b"\x00text", "is no sentencepiece model"), (None, "can't be read")])
def test_what_is_no_model_is_refused(tmp_path, content, words):
    if content:
        (tmp_path / "x.model").write_bytes(content)
    with pytest.raises(UsageError, match=words):
        SentencePieceTokenizer.read(tmp_path / "x.model")


@pytest.mark.parametrize("size, words", [(20, "less than the"), (5000, "more than the text can give")])
def test_a_size_that_cannot_be_is_refused(size, words):
    with pytest.raises(UsageError, match=words):
        train(size=size)


def test_rare_characters_become_unknown():
    common = train(size=15, texts=["many words " * 100 + "报"], character_coverage=0.99)
    assert "报" not in common.vocabulary.ids and "w" in common.vocabulary.ids


@pytest.mark.parametrize(
    "group, name, value, words",
    [
        ("trainer_spec", "byte_fallback", True, "byte_fallback"),
        ("trainer_spec", "treat_whitespace_as_suffix", True, "ends of words"),
        ("normalizer_spec", "remove_extra_whitespaces", False, "several spaces"),
    ],
)
def test_what_hugging_faces_library_does_otherwise_is_not_given_to_it(tokenizer, group, name, value, words):
    model = ModelProto.FromString(tokenizer._model.SerializeToString())
    setattr(getattr(model, group), name, value)
    with pytest.raises(UsageError, match=words):
        as_huggingface(model, BOUNDARY, unknown_id=1)


def test_a_longer_bpe_vocabulary_with_pieces_taken_first_is_not_given_to_it():
    longer = train("bpe").with_pieces([f"{BOUNDARY}quickjumpfox"])
    with pytest.raises(UsageError, match="taken before all others"):
        longer.as_huggingface()


def test_a_model_of_characters_is_refused(tokenizer):
    model = ModelProto.FromString(tokenizer._model.SerializeToString())
    model.trainer_spec.model_type = 4
    with pytest.raises(UsageError, match="of words or characters; give one of unigram, bpe"):
        SentencePieceTokenizer(model, "it")


def test_hugging_faces_library_gives_the_same_ids(tokenizer):
    theirs = tokenizer.as_huggingface()
    texts = [*TEXTS[:40], "", "  two  spaces ", "nul\0here", "unknown \u0905\u0906", "x" * 300]
    assert [one.ids for one in theirs.encode_batch(texts)] == tokenizer.encode_batch(texts)


def test_long_words_are_cut_and_all_are_counted():
    counts = count_words(["a b a", "中" * 2500])
    assert counts["a"] == 2 and counts["中" * 1000] == 2 and counts["中" * 500] == 1 and len(counts) == 4
