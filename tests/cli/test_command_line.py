import pytest

from bert_jax.cli.command_line import with_listed_sources
from bert_jax.cli.pretrain import Pretrain
from bert_jax.system.errors import UsageError

TWO = """
[[source]]
source = "text:a.txt"
language = "hi"
weight = 2.0

[[source]]
source = "b.txt"
weight = 1
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "sources.toml").write_text(TWO)
    return tmp_path / "sources.toml"


@pytest.mark.parametrize("form", ["--data.source @{}", "--data.source=@{}"])
def test_a_file_stands_for_sources_languages_and_weights(file, form):
    words = ["configs/demo.py", "--workdir", "x", *form.format(file).split(), "--seed", "3"]
    data = Pretrain.parse(words).config.data
    assert (data.source, data.language, data.weights) == (("text:a.txt", "b.txt"), ("hi", "en"), (2.0, 1.0))


def test_a_command_whose_words_are_sources_takes_the_file_as_one_of_them(file):
    words = [f"@{file}", "--config", "demo"]
    listed = ["text:a.txt", "b.txt", "--language", "hi", "en", "--weights", "2.0", "1.0"]
    assert with_listed_sources(words, positional=True) == [*listed[:2], "--config", "demo", *listed[2:]]
    with pytest.raises(UsageError, match=r"SOURCE @.*/sources.toml gives --weights too"):
        with_listed_sources(["c.txt", f"@{file}", "--weights", "1"], positional=True)


def test_other_words_are_as_they_were():
    for words in (["--data.source"], ["--data.source", "a@b", "c"], []):
        assert with_listed_sources(words) == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[source]]\nsrc = 'a'", "table 1: source is missing"),
        ("x = 1", "it has x"),
        ("", "it has no \\[\\[source\\]\\]"),
        ("[[source]", "can't be read"),
        ("source = 3", "can't be read"),
        ("[[source]]\nsource = 'a'\nweight = 1\n[[source]]\nsource = 'b'", "1 of 2 sources a weight"),
    ],
)
def test_a_file_that_is_no_list_is_refused_in_one_line(tmp_path, text, expected):
    (tmp_path / "sources.toml").write_text(text)
    with pytest.raises(UsageError, match=expected) as refusal:
        with_listed_sources(["--data.source", f"@{tmp_path / 'sources.toml'}"])
    assert "\n" not in str(refusal.value)


def test_flags_that_the_file_gives_too_and_a_missing_file_are_refused(file):
    with pytest.raises(UsageError, match="gives --data.language too; leave them out"):
        with_listed_sources(["--data.source", f"@{file}", "--data.language", "en"])
    with pytest.raises(UsageError, match="No such file"):
        with_listed_sources(["--data.source", "@/nowhere.toml"])
