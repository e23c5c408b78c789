from bert_jax.text.sentences import split_sentences


def test_sentences_are_split_and_stripped():
    text = "  Dr. Smith went home. He said so!  Why? "
    assert split_sentences(text, "en") == ["Dr. Smith went home.", "He said so!", "Why?"]


def test_chinese_stops_end_sentences():
    assert split_sentences("雪下了。山林云雾飘渺，很美！", "zh") == ["雪下了。", "山林云雾飘渺，很美！"]


def test_an_unknown_language_still_splits():
    assert split_sentences("One. Two.", "xx") == ["One.", "Two."]


def test_nothing_gives_nothing():
    assert split_sentences("   ", "en") == []
