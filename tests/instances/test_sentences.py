import pytest

from bert_jax.instances.sentences import encode_documents


class Letters:
    """Every letter a piece, a its 1, and a list of what was encoded."""

    cuts = tuple(lambda texts, at=at: [part for text in texts for part in (*text.split(at), "\n")] for at in (" ", "-"))

    def __init__(self):
        self.asked = []

    def encode_batch(self, texts):
        self.asked += texts
        return [[ord(letter) - ord("a") + 1 for letter in text if letter.isalpha()] for text in texts]

    def unknown_characters(self, texts, ids):
        return [text.count("c") for text in texts]


def test_documents_and_sentences_without_pieces_are_left_out():
    text = encode_documents([["a", ""], [""], ["", "b c", "a"]], Letters())
    assert text.tokens.tolist() == [1, 2, 3, 1]
    assert text.ends.tolist() == [0, 1, 3, 4]
    assert text.documents.tolist() == [0, 1, 3]


@pytest.mark.parametrize("documents", [[], [[]], [[""]]])
def test_nothing_is_nothing(documents):
    text = encode_documents(documents, Letters())
    assert len(text.tokens) == 0 and text.documents.tolist() == [0]


def test_a_part_is_encoded_once():
    letters = Letters()
    text = encode_documents([["ab c-ab", "c"], ["c-c ab"]], letters)
    assert text.tokens.tolist() == [1, 2, 3, 1, 2, 3, 3, 3, 1, 2]
    assert text.ends.tolist() == [0, 5, 6, 10]
    assert letters.asked == ["ab", "c"]
    assert (text.characters, text.unknown_characters) == (12, 4)  # as often as they stand


def test_words_of_earlier_texts_are_remembered_until_they_are_many(monkeypatch):
    letters = Letters()
    texts = [encode_documents([["ab c-ab"]], letters), encode_documents([["d ab", "c-d"]], letters)]
    assert letters.asked == ["ab", "c", "d"]
    monkeypatch.setattr("bert_jax.instances.sentences._MOST_CHARACTERS", 2)
    texts.append(encode_documents([["c ab"]], letters))
    assert letters.asked == ["ab", "c", "d", "c", "ab"]
    assert [text.tokens.tolist() for text in texts] == [[1, 2, 3, 1, 2], [4, 1, 2, 3, 4], [3, 1, 2]]
    assert [text.unknown_characters for text in texts] == [1, 1, 1]


def test_words_are_counted_between_blanks_also_of_sentences_without_pieces():
    assert encode_documents([["ab  c-ab d", "."], ["c"]], Letters()).words == 5
