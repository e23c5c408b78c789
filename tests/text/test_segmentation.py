import pytest

from bert_jax.text.segmentation import LONG_PARAGRAPH, has_rules, split_sentences


@pytest.mark.parametrize(
    "text, language, sentences",
    [
        ("  Dr. Smith went home. He said so!  Why? ", "en", ["Dr. Smith went home.", "He said so!", "Why?"]),
        ("雪下了。山林云雾飘渺，很美！", "zh", ["雪下了。", "山林云雾飘渺，很美！"]),
        ("One. Two.", "xx", ["One.", "Two."]),  # an unknown language
        ("   ", "en", []),
        (
            "See plan A\u00a0. Then\u00a0we go.",
            "en",
            ["See plan A\u00a0.", "Then\u00a0we go."],
        ),  # sentencex alone panics
        ("Why? Plan A \u3000.", "en", ["Why?", "Plan A \u3000."]),
    ],
)
def test_sentences_are_split_by_the_rules_of_a_language(text, language, sentences):
    assert split_sentences(text, language) == sentences


def test_a_region_or_script_has_its_language_s_rules():
    text = "Das kostet z. B. drei Euro. Es war am 3. Mai."
    assert split_sentences(text, "de-AT") == split_sentences(text, "de") != split_sentences(text, "und")
    assert has_rules("de-AT") and has_rules("zh-Hant") and not has_rules("sw")


def test_a_long_chinese_paragraph_is_split_as_its_parts_are():
    sentences = ["雪下了。", "山林云雾飘渺，很美！", "他说：“不去吗？”", "走吧！？"]
    paragraph = "".join(sentences) * (2 * LONG_PARAGRAPH // len("".join(sentences)))
    count = len(paragraph) // len("".join(sentences))
    assert split_sentences(paragraph, "zh") == split_sentences("".join(sentences), "zh") * count
