import pytest
from trained_tokenizers import trained

from bert_jax.system.errors import UsageError
from bert_jax.text import sentencepiece as sentencepiece_module
from bert_jax.text.extension import extend, replaced_pieces
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

TEXT = ("un able unable hello world worlds electron photo photon virus corona immune 中 国 " * 3,) * 5
WORDS = ["Photovirus", "photoviruses", "Coronavirus", "photovirus", "x-ray", "two words", "", "中国"]


def wordpiece():
    pieces = [*SPECIAL_PIECES, *"photo ##virus ##es corona hello world ##s [ ] 中 国".split()]
    return WordPieceTokenizer(Vocabulary(pieces))


@pytest.fixture(scope="module", params=["wordpiece", "unigram", "bpe", "byte_bpe"])
def old(request):
    if request.param == "wordpiece":
        return wordpiece()
    return trained(request.param, 270 if request.param == "byte_bpe" else 34, TEXT)


def written(tokenizer, ids):
    return [tokenizer.vocabulary.pieces[number] for number in ids]


def test_old_pieces_keep_their_ids_and_new_words_are_whole(old, tmp_path):
    longer, added, known, split, _ = extend(old, WORDS)
    new = longer.vocabulary.pieces[len(old.vocabulary) :]
    assert longer.vocabulary.pieces[: len(old.vocabulary)] == old.vocabulary.pieces
    # WordPiece sets every ideograph apart.
    assert (added, known, split) == ((3, 1, 4) if old.kind == "wordpiece" else (4, 1, 3))
    longer.save(tmp_path)
    for piece, word in zip(new, ["photovirus", "PHOTOVIRUSES", "coronavirus"]):
        assert longer.piece_text(longer.vocabulary.ids[piece]) == word.lower()
        assert written(longer, longer.encode(word)) == [piece]
        assert load_tokenizer(tmp_path).encode(word) == longer.encode(word)
    assert longer.starts_word[-len(new) :].all()


def test_other_words_are_encoded_as_before(old):
    longer = extend(old, ["photovirus", "worldvirus"]).tokenizer
    for text in ["hello world", "worlds unable corona", "electron immune virus"]:
        assert longer.encode(text) == old.encode(text)


def test_a_word_of_a_script_without_spaces_is_found_inside_text():
    longer = extend(trained("unigram", 34, TEXT), ["中国"]).tokenizer
    assert "中国" in written(longer, longer.encode("国中国中"))


def test_replaced_pieces_are_what_the_old_tokenizer_made_of_the_new():
    old = wordpiece()
    longer = extend(old, ["photoviruses", "xyz"]).tokenizer
    replaced = replaced_pieces(old, longer)
    assert replaced[: len(old.vocabulary)] == [[number] for number in range(len(old.vocabulary))]
    assert [written(old, ids) for ids in replaced[len(old.vocabulary) :]] == [["photo", "##virus", "##es"], ["[UNK]"]]


def test_every_new_piece_replaces_at_least_one(old):
    replaced = replaced_pieces(old, extend(old, WORDS).tokenizer)
    assert all(replaced) and max(max(ids) for ids in replaced) < len(old.vocabulary)
    nothing = WordPieceTokenizer(Vocabulary([*wordpiece().vocabulary.pieces, "\u200b"]))
    assert replaced_pieces(wordpiece(), nothing)[-1] == [wordpiece().vocabulary.unknown_id]


@pytest.mark.parametrize(
    "pieces, words",
    [
        ([*SPECIAL_PIECES, "corona"], "piece 5 is 'photo' in the old and 'corona' in the new"),
        ([*SPECIAL_PIECES], "piece 5 is 'photo' in the old and none in the new"),
    ],
)
def test_another_vocabulary_is_refused(pieces, words):
    with pytest.raises(UsageError) as refusal:
        replaced_pieces(wordpiece(), WordPieceTokenizer(Vocabulary(pieces)))
    assert words in str(refusal.value)


def test_a_word_that_a_model_always_splits_is_refused(monkeypatch):
    monkeypatch.setattr(sentencepiece_module, "_SCORE_STEP", -5.0)
    with pytest.raises(UsageError, match="splits 'photovirus' whatever its pieces; leave the word out"):
        extend(trained("unigram", 34, TEXT), ["photovirus"])
