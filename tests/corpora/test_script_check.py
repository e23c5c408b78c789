import pytest

from bert_jax.corpora.script_check import script_remark

TEXTS = {
    "hi": "दीनगढ़ सड़कवाला किताब पुस्तकता शहर फलवाला दिनी पानी विद्यालयों कमल",
    "ru": "Съешь же ещё этих мягких французских булок, да выпей чаю",
    "en": "the quick brown fox jumps over the lazy dog",
    "ja": "戦後日本においてストーリー漫画の第一人者として、漫画表現の開拓者的な存在として活躍した。",
    "ko": "대수학은 일련의 공리들을 만족하는 수학적 구조들의 일반적인 성질을 연구하는 수학의 한 분야이다",
    "zh": "數學是研究數量、結構以及空間等概念及其變化的一門學科",
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_text_in_the_script_of_its_language_gets_no_remark(language):
    assert script_remark([[TEXTS[language] * 20]], language) is None


def test_a_text_in_another_script_is_remarked_with_its_shares():
    mixed = [[TEXTS["ru"] * 20], [TEXTS["en"] * 9]]
    assert script_remark(mixed, "hi") == (
        "is said to be in hi, whose script is Devanagari, and its letters are 74% Cyrillic, 26% Latin"
    )
    assert script_remark(mixed, "ru") is None


def test_little_text_and_unknown_scripts_are_not_judged():
    assert script_remark([["short"]], "hi") is None
    assert script_remark([[TEXTS["en"] * 20]], "nqo") is None  # N'Ko
