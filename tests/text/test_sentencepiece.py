import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from trained_tokenizers import trained

from bert_jax.system.errors import UsageError
from bert_jax.text.sentencepiece import SentencePieceTokenizer, read_model
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.vocabulary import BOUNDARY


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request):
    return trained(request.param)


def test_words_begin_at_boundaries_punctuation_and_ideographs(tokenizer):
    for number, (piece, starts) in enumerate(zip(tokenizer.vocabulary.pieces, tokenizer.starts_word)):
        letter = piece[:1].isalpha() and piece[0] < "\u3000"
        assert starts == (number < 5 or not letter), piece
    assert BOUNDARY in tokenizer.vocabulary.ids and tokenizer.starts_word[tokenizer.vocabulary.ids[BOUNDARY]]


def renamed(tokenizer, names) -> bytes:
    model = ModelProto.FromString(tokenizer._model.SerializeToString())
    for piece, name in zip(model.pieces, names):
        piece.piece = name
        if name == "<mask>":
            piece.type = ModelProto.SentencePiece.USER_DEFINED
    model.trainer_spec.unk_piece = names[1]
    return model.SerializeToString()


def test_special_pieces_of_another_programs_model_are_found_by_name(tokenizer, tmp_path):
    path = tmp_path / "given.model"
    path.write_bytes(renamed(tokenizer, ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]))
    renamed_tokenizer = load_tokenizer(path)
    assert renamed_tokenizer.vocabulary.special_ids == (0, 1, 2, 3, 4)
    assert 4 not in renamed_tokenizer.encode("<mask> the")
    assert renamed_tokenizer.encode_special("the [MASK]")[-1] == 4


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
        read_model(tmp_path / "x.model")


@pytest.mark.parametrize(
    "group, name, value, words",
    [
        ("trainer_spec", "byte_fallback", True, "byte_fallback"),
        ("trainer_spec", "treat_whitespace_as_suffix", True, "ends of words"),
        ("normalizer_spec", "remove_extra_whitespaces", False, "several spaces"),
    ],
)
def test_a_model_that_hugging_faces_library_encodes_otherwise_is_not_converted(tokenizer, group, name, value, words):
    model = ModelProto.FromString(tokenizer._model.SerializeToString())
    changed = SentencePieceTokenizer(model)
    setattr(getattr(model, group), name, value)
    with pytest.raises(UsageError, match=words):
        changed.as_huggingface()


def test_a_longer_bpe_with_pieces_taken_first_is_not_converted():
    longer = trained("bpe").with_pieces([f"{BOUNDARY}quickjumpfox"])
    with pytest.raises(UsageError, match="taken before all others"):
        longer.as_huggingface()


def test_a_model_of_characters_is_refused(tokenizer):
    model = ModelProto.FromString(tokenizer._model.SerializeToString())
    model.trainer_spec.model_type = 4
    with pytest.raises(UsageError, match="of words or characters; give one of unigram, bpe"):
        SentencePieceTokenizer(model, "it")
