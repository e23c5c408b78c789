"""Letters that a tokenizer's cleaning drops are told; case and forms of the same letter are not."""

import unicodedata

import pytest

from bert_jax.text.cleaning import Cleaning
from bert_jax.text.merged_letters import merged_letters

ORIGINAL = Cleaning.of_file(lowercase=True).normalizer().normalize_str
CASED = Cleaning.of_file(lowercase=False).normalizer().normalize_str
TRAINED = Cleaning.of_training(lowercase=True).normalizer().normalize_str
MALTESE = "Ġie żewġ darbiet, u gie iżda le: ħobż."
KOREAN, UYGHUR, HINDI = "한국어 문장이 여기에 있다", "ئۇيغۇر ئۆز ئىلتىماس", "हिन्दी में लिखा है"


def test_the_words_that_lose_letters_are_counted_and_shown():
    merged = merged_letters([MALTESE], ORIGINAL)
    assert merged.startswith("50.0% of the words lose letters or accents")
    assert "2 different words become equal" in merged
    assert merged.endswith(": ġie → gie, żewġ → zewg, iżda → izda")
    assert merged_letters([unicodedata.normalize("NFD", MALTESE)], ORIGINAL) == merged


@pytest.mark.parametrize(
    "text, clean",
    [
        ("The House of HER Majesty, and the naïve Café " + "of the town " * 40, ORIGINAL),
        (MALTESE, CASED),
        (KOREAN, ORIGINAL),  # decomposed, and the same
        (UYGHUR, TRAINED),
        (HINDI, TRAINED),
        ("Straße ﬁne ＡＢＣ ☎️ ΣΟΦΟΣ σοφος", TRAINED),
        ("", ORIGINAL),
    ],
)
def test_nothing_is_said_of_case_of_composition_and_of_rare_names(text, clean):
    assert merged_letters([text], clean) is None


@pytest.mark.parametrize("text", [UYGHUR, HINDI, "を使って 読みがな です", "Ärger über Öl"])
def test_marks_of_all_scripts_are_letters(text):
    assert "words lose letters" in merged_letters([text], ORIGINAL)


def test_a_long_word_is_shown_from_its_first_change():
    assert merged_letters(["x" * 30 + "ġie" + "y" * 30], ORIGINAL).endswith("ġie" + "y" * 17 + " → gie" + "y" * 17)
