import pytest

from bert_jax.config.wording import counted, first_sentence


@pytest.mark.parametrize(
    "number, nouns, text",
    [
        (1, "columns", "1 column"),
        (0, "columns", "0 columns"),
        (2000, "rows with an empty text", "2,000 rows with an empty text"),
        (1, "empty lines left out", "1 empty line left out"),
        (1, "rows of two texts", "1 row of two texts"),
        (1.0, "epochs", "1 epoch"),
        (2.5, "epochs", "2.5 epochs"),
    ],
)
def test_one_is_singular(number, nouns, text):
    assert counted(number, nouns) == text


def test_a_sentence_does_not_end_at_the_names_of_authors():
    assert first_sentence("AdamW, or LAMB (You et al. 2020). Next.") == "AdamW, or LAMB (You et al. 2020)."
    assert first_sentence("One. Two.") == "One."
