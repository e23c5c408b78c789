import langcodes
import pytest

from bert_jax.config.data import DataConfig
from bert_jax.config.language import language_code, language_name, usual_encoding
from bert_jax.config.settings import SettingsError


@pytest.mark.parametrize(
    "named, code",
    [
        ("eng", "en"),
        ("English", "en"),
        ("chinese", "zh"),
        ("zh-hant", "zh-Hant"),
        ("pt_BR", "pt-BR"),
        ("Deutsch", "de"),
    ],
)
def test_codes_and_names_are_known(named, code):
    assert language_code(named) == code
    assert DataConfig(language=named).language == (code,)


@pytest.mark.parametrize("named", ["xx", "qwertz", "", "a" * 5000, "\0", "en en", "\ud800", "../en"])
def test_others_are_refused_in_one_short_line(named):
    with pytest.raises(SettingsError, match="--data.language: .* is no language") as refusal:
        DataConfig(language=("en", named), source=("python-docs", "text:a"))
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 200


def test_what_was_probably_meant_is_said():
    with pytest.raises(SettingsError, match=r"russsian is no language that is known; did you mean Russian \(ru\)\?"):
        DataConfig(language="russsian")
    assert language_name("sw") == "Swahili"


@pytest.mark.parametrize(
    "code, encoding",
    [("zh", "GB18030"), ("zh-Hant", "BIG5"), ("ja", "SHIFT_JIS"), ("ru", "WINDOWS-1251"), ("pt-BR", "WINDOWS-1252")],
)
def test_the_usual_encoding_of_a_language_can_write_its_name(code, encoding):
    assert usual_encoding(code) == encoding
    assert langcodes.get(code).autonym().encode(encoding)
