from bert_jax.text.segmentation import has_rules, split_sentences


def test_sentences_are_split_and_stripped():
    text = "  Dr. Smith went home. He said so!  Why? "
    assert split_sentences(text, "en") == ["Dr. Smith went home.", "He said so!", "Why?"]


def test_chinese_stops_end_sentences():
    assert split_sentences("雪下了。山林云雾飘渺，很美！", "zh") == ["雪下了。", "山林云雾飘渺，很美！"]


def test_an_unknown_language_still_splits():
    assert split_sentences("One. Two.", "xx") == ["One.", "Two."]


def test_nothing_gives_nothing():
    assert split_sentences("   ", "en") == []


def test_a_region_or_script_has_its_language_s_rules():
    text = "Das kostet z. B. drei Euro. Es war am 3. Mai."
    assert split_sentences(text, "de-AT") == split_sentences(text, "de") != split_sentences(text, "und")
    assert has_rules("de-AT") and has_rules("zh-Hant") and not has_rules("sw")
