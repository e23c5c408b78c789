"""What cleaning keeps and drops of text in many scripts."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trained_tokenizers import KINDS, trained

from bert_jax.system.errors import UsageError
from bert_jax.text.cleaning import ORIGINAL, Cleaning
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary, VocabularySizeError
from bert_jax.text.wordpiece import WordPieceTokenizer

OURS = Cleaning.of_training()
SPELLED = {
    "Hindi": ("बच्चे हिन्दी", "बच्चे हिन्दी"),
    "Sinhala": ("ක්‍ය", "ක්‍ය"),
    "Persian": ("می‌خواهم آب", "می‌خواهم آب"),
    "Thai": ("น้ำ", "น้ำ"),
    "Hebrew": ("שָׁלוֹם", "שָׁלוֹם"),
    "Japanese": ("ガがか\u3099", "ガがが"),
    "Korean": ("한국 \u1112\u1161\u11ab", "한국 한"),
    "Latin": ("Élan e\u0301 Việt İstanbul", "elan e viet istanbul"),
    "Cyrillic and Greek": ("Ёж й Άλφα", "еж и αλφα"),
}
"""Text in a script, and how it is spelled once it is cleaned for a vocabulary that is trained here."""
ALL_TEXTS = tuple(f"{text} {clean}" for text, clean in SPELLED.values()) * 3


def largest(kind, texts, *cleaning, **named):
    """The tokenizer with the largest vocabulary of this kind that the texts can give."""
    with pytest.raises(VocabularySizeError) as refusal:
        trained(kind, 9000, texts, *cleaning, **named)
    return trained(kind, refusal.value.size, texts, *cleaning, **named)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPELLED)
def test_a_trained_vocabulary_spells_every_script(name, kind):
    text, clean = SPELLED[name]
    tokenizer = largest(kind, ALL_TEXTS)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == clean and tokenizer.vocabulary.unknown_id not in ids


@pytest.mark.parametrize(
    ("cleaning", "expected"),
    [
        (Cleaning.of_training(strip_accents=True), "eclair बचच 2 ﬁ ™"),
        (Cleaning.of_training(strip_accents=False), "éclair बच्चे 2 ﬁ ™"),
        (Cleaning.of_training(lowercase=False), "Éclair बच्चे 2 ﬁ ™"),
        (Cleaning.of_training(lowercase=False, strip_accents=True), "Eclair बचच 2 ﬁ ™"),
        (Cleaning.of_training(form="NFKC"), "eclair बच्चे 2 fi tm"),
        (Cleaning.of_training(lowercase=False, form="NFKC"), "Éclair बच्चे 2 fi TM"),
    ],
)
@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte_bpe"])
def test_settings_choose_what_is_dropped(kind, cleaning, expected):
    text = "E\u0301clair बच्चे 2 ﬁ ™" if kind == "byte_bpe" else "E\u0301cl\x00air बच्चे 2 ﬁ ™"
    tokenizer = largest(kind, (text, expected) * 3, *cleaning[:3])
    if kind == "byte_bpe" and not cleaning.strip_accents and cleaning.form == "NFC":  # as RoBERTa's, not composed
        expected = text.lower() if cleaning.lowercase else text
    assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_characters_are_cleaned_alike_by_both_libraries():
    different = []
    clean = OURS.normalizer().normalize_str
    for point in (*range(1, 0x3400), *range(0xA000, 0xD800), *range(0xFB00, 0x11000)):
        character = chr(point)
        if not character.isspace() and clean(character).strip() != OURS.of_character(character):
            different.append(f"{point:x}")
    # Python's Unicode is newer than the library's: capitals and marks of scripts that were added since.
    assert len(different) < 40, different


@given(st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("aé\u0301\u0338<|中が\u3099\u200d .\n"))))
def test_cleaning_again_changes_nothing(text):
    clean = OURS.normalizer().normalize_str
    once = clean(text)
    assert " ".join(clean(once).split()) == " ".join(once.split())


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe"])
def test_a_zero_width_space_divides_words_of_a_vocabulary_that_is_trained_here(kind):
    text = "ភាសា\u200bខ្មែរ"
    tokenizer = largest(kind, (text, "ភាសាខ្មែរ") * 3)
    ids = tokenizer.encode(text)
    assert ids == tokenizer.encode(text.replace("\u200b", " ")) == tokenizer.encode_batch([text])[0]
    assert ids != tokenizer.encode(text.replace("\u200b", ""))
    assert tokenizer.as_huggingface().encode(text, add_special_tokens=False).ids == ids
    assert [text[span.begin : span.end] for span in tokenizer.encode_spans(text)][-1].endswith("រ")
    assert ORIGINAL.normalizer().normalize_str(text) == "ភាសាខមែរ"  # deleted, with the marks


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strip_accents", [None, False])
def test_turkish_has_two_letters_i(kind, strip_accents):
    texts = ("ISPARTA İstanbul I\u0307zmir", "ısparta istanbul izmir şeker") * 3
    tokenizer = largest(kind, texts, True, strip_accents, turkish=True)
    assert tokenizer.decode(tokenizer.encode(texts[0])) == "ısparta istanbul izmir"
    assert tokenizer.encode("I") == tokenizer.encode("ı") != tokenizer.encode("i") == tokenizer.encode("İ")
    theirs = tokenizer.as_huggingface().encode(texts[0], add_special_tokens=False)
    assert theirs.ids == tokenizer.encode(texts[0])


def test_pieces_that_cleaning_makes_impossible_are_counted():
    pieces = [*SPECIAL_PIECES, *"abcdefgh", "é", "##ü", "बच्चे"]
    of_original = WordPieceTokenizer(Vocabulary(pieces))
    assert of_original.impossible_remark == (
        "3 of the vocabulary's 16 pieces can't occur, because the cleaning of text changes them, such as 'é', 'ü', "
        "'बच्चे'"
    )
    assert WordPieceTokenizer(Vocabulary(pieces), Cleaning(False, False, "NFC")).impossible_remark is None


def test_a_file_is_cleaned_as_by_the_original_unless_settings_ask_for_another():
    assert Cleaning.of_file() == ORIGINAL == Cleaning(True, True, None)
    assert Cleaning.of_file(lowercase=False) == Cleaning(False, False, None)
    for cleaning, expected in {(True, False): "é", (False, True): "E", (False, False): "É"}.items():
        assert Cleaning(*cleaning).normalizer().normalize_str("É") == expected
    assert Cleaning.of_file(strip_accents="cased") == OURS == Cleaning(True, "cased", "NFC", divides_words=True)
    with pytest.raises(UsageError, match="set lowercase to false"):
        WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *(f"A{n}" for n in range(1200))]), OURS)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_an_export_composes_what_a_model_composes(kind):
    tokenizer = largest(kind, ALL_TEXTS)
    theirs = tokenizer.as_huggingface()
    for text, _ in SPELLED.values():
        decomposed = unicodedata.normalize("NFD", text)
        assert theirs.encode(decomposed, add_special_tokens=False).ids == tokenizer.encode(decomposed), text
