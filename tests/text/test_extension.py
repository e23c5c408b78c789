import random

import pytest
from trained_tokenizers import trained

from bert_jax.system.errors import UsageError
from bert_jax.text import sentencepiece as sentencepiece_module
from bert_jax.text.extension import check_extension, extend
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.tokenizer_json import with_unigram_pieces
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

TEXT = ("un able unable hello world worlds electron photo photon virus corona immune 中 国 " * 3,) * 5
WORDS = ["Photovirus", "photoviruses", "Coronavirus", "photovirus", "x-ray", "two words", "", "中国"]


def wordpiece():
    pieces = [*SPECIAL_PIECES, *"photo ##virus ##es corona hello world ##s [ ] 中 国".split()]
    return WordPieceTokenizer(Vocabulary(pieces))


@pytest.fixture(scope="module", params=["wordpiece", "unigram", "bpe", "byte_bpe", "metaspace"])
def old(request):
    if request.param == "wordpiece":
        return wordpiece()
    if request.param == "metaspace":  # a unigram model in a tokenizer.json, as XLM-R's
        return trained("unigram", 34, TEXT).as_pipeline()
    return trained(request.param, 270 if request.param == "byte_bpe" else 34, TEXT)


def written(tokenizer, ids):
    return [tokenizer.vocabulary.pieces[number] for number in ids]


def test_old_pieces_keep_their_ids_new_words_are_whole_and_others_encoded_as_before(old, tmp_path):
    longer, added, known, split, _ = extend(old, WORDS)
    check_extension(old, longer)
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
    for text in ["hello world", "worlds unable corona", "electron immune virus"]:
        assert longer.encode(text) == old.encode(text)


@pytest.mark.parametrize("has_marker", [False, True])
def test_a_text_without_the_added_words_keeps_its_ids_in_a_unigram_model(has_marker):
    old = trained("unigram", 34, TEXT).as_pipeline()
    old = extend(old, [], ["[E11]"]).tokenizer if has_marker else old
    # Of unknown characters, of rare pieces, and one the beginning of another: the sums of scores are far apart.
    words = ["ѣѣѣѣѣѣѣѣ", "photovirus", "photoviruses", "xqzkjw" * 4, "ab", "abel", "国国国国", "国国"]
    longer = extend(old, words).tokenizer
    assert longer.vocabulary.pieces[: len(old.vocabulary)] == old.vocabulary.pieces
    pieces = [old.piece_of_word(word) for word in words]
    assert [written(longer, longer.encode(word))[-1:] for word in words] == [[piece] for piece in pieces]
    assert [len(longer.encode(word)) for word in words[:6]] == [1] * 6
    lowest = [min(score for _, score in each.contents["model"]["vocab"]) for each in (old, longer)]
    assert lowest[0] == lowest[1]  # from which the library derives the score of unknown characters
    added, letters = longer.vocabulary.pieces[len(old.vocabulary) :], "aehlotunvirs ѣ国q"
    draw = random.Random(0)
    texts = [" ".join("".join(draw.choices(letters, k=7)) for _ in range(6)) for _ in range(2000)]
    same = [text for text in texts if not any(piece in f" {text}".replace(" ", "▁") for piece in added)]
    assert len(same) > 1500
    assert longer.encode_batch(same) == old.encode_batch(same)
    if has_marker:
        assert longer.encode("[E11]") == old.encode("[E11]")


def test_scores_of_added_pieces_follow_from_those_that_they_replace():
    vocab = [("<unk>", 0.0), ("a", -1.0), ("b", -2.0), ("c", -9.0)]
    longer = dict(with_unigram_pieces(vocab, ["[X]"], ["abab", "ab", "xa", "cc"]))
    assert list(longer) == ["<unk>", "a", "b", "c", "[X]", "abab", "ab", "xa", "cc"]
    # Of ab twice, which is added too; an unknown character has 10 less than the lowest, and none is below the lowest.
    expected = {"ab": -2.9, "abab": -5.7, "xa": -9.0, "cc": -9.0, "[X]": -9.0}
    assert {piece: longer[piece] for piece in expected} == pytest.approx(expected)


def test_an_added_word_doesnt_split_longer_words_that_were_whole():
    old = trained("unigram").as_pipeline()
    whole = [piece for piece in old.vocabulary.pieces if len(piece) > 5 and piece.startswith("▁")]
    beginnings = [piece[1:-1] for piece in whole]
    longer = extend(old, beginnings).tokenizer
    assert len(longer.vocabulary) > len(old.vocabulary) and len(whole) > 5
    for piece in whole:
        assert longer.encode(piece[1:]) == [old.vocabulary.ids[piece]]


def test_a_word_of_a_script_without_spaces_is_found_inside_text():
    longer = extend(trained("unigram", 34, TEXT), ["中国"]).tokenizer
    assert "中国" in written(longer, longer.encode("国中国中"))


@pytest.mark.parametrize("pieces, words", [(["corona"], "'corona' in the new"), ([], "none in the new")])
def test_another_vocabulary_is_refused(pieces, words):
    with pytest.raises(UsageError, match=f"piece 5 is 'photo' in the old and {words}"):
        check_extension(wordpiece(), WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *pieces])))


def test_a_word_that_a_model_always_splits_is_refused(monkeypatch):
    monkeypatch.setattr(sentencepiece_module, "_SCORE_STEP", -5.0)
    with pytest.raises(UsageError, match="splits 'photovirus' whatever its pieces; leave the word out"):
        extend(trained("unigram", 34, TEXT), ["photovirus"])
