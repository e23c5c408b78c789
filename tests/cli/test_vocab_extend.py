"""bert-jax vocab --extend: a vocabulary with more words and markers."""

import shutil

import pytest

from bert_jax.cli.main import run
from bert_jax.system.bucket import place_of
from bert_jax.text.tokenizer import load_tokenizer


def refused(capsys, *arguments) -> str:
    """The one line that a refusal prints."""
    assert run(list(map(str, arguments))) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("bert-jax: ")
    return lines[0]


def test_a_vocabulary_is_made_longer(tiny_run, tmp_path, capsys):
    shutil.copytree(tiny_run.tokenizer, tmp_path / "run" / "tokenizer")
    words, longer = tmp_path / "words.txt", tmp_path / "longer.txt"
    words.write_text("Coronavirus\nthe\n\nx-ray\n")
    for given in ("run", "run/tokenizer", "run/tokenizer/vocab.txt"):
        line = ["vocab", "--extend", str(tmp_path / given), "--words", str(words)]
        assert run([*line, "--output", str(longer)]) == 0
        assert "151 pieces (1 word added, 1 known already, 1 left out" in capsys.readouterr().out
        assert longer.read_text().splitlines() == [*load_tokenizer(tiny_run.path).vocabulary.pieces, "coronavirus"]
        longer.unlink()
    shutil.copy(tiny_run.tokenizer / "vocab.txt", tmp_path)
    longer = tmp_path / "vocab.extended.txt"
    assert run(["vocab", "--extend", str(tmp_path / "vocab.txt"), f"--words={words}"]) == 0
    (tmp_path / "markers.txt").write_text("[E11]\n<num>\n")
    marked = tmp_path / "run" / "vocab.extended.json"
    markers = str(tmp_path / "markers.txt")
    assert run(["vocab", "--extend", str(longer), "--markers", markers, "--output", str(marked)]) == 0
    assert "153 pieces (0 words added, 0 known already" in capsys.readouterr().out
    assert load_tokenizer(marked).encode("[E11]<num>") == [151, 152]


@pytest.mark.parametrize(
    "flags, words",
    [
        ({"--words": "absent"}, "no file of words at"),
        ({"--words": "known.txt"}, "adds nothing to"),
        ({"--extend": "cased.txt"}, "has pieces with capitals and words would be lower-cased; add --no-lowercase"),
        ({"--output": "vocab.txt"}, "exists already; choose another --output"),
        ({"--output": "x.model"}, "a wordpiece vocabulary is written as vocab.txt"),
        ({"--output": "absent/x.txt"}, "there is no directory"),
        ({"--markers": "markers.txt", "--output": "x.txt"}, "a wordpiece vocabulary is written as tokenizer.json"),
    ],
)
def test_a_vocabulary_that_cannot_be_made_longer_is_one_line(tmp_path, capsys, flags, words):
    pieces = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
    contents = {"vocab.txt": f"{pieces}a\n", "cased.txt": f"{pieces}A\n", "words.txt": "b\n", "known.txt": "a\n"}
    contents["markers.txt"] = "[E11]\n"
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    given = {"--extend": "vocab.txt", "--words": "words.txt"} | flags
    arguments = [part for flag, name in given.items() for part in (flag, tmp_path / name)]
    assert words in refused(capsys, "vocab", *arguments)
    assert {path.name for path in tmp_path.iterdir()} == set(contents)
    assert (tmp_path / "vocab.txt").read_text() == contents["vocab.txt"]


def test_a_vocabulary_in_a_bucket_is_made_longer(tiny_run, bucket_server, bucket, tmp_path, capsys):
    bucket_server.put(f"{bucket}/words.txt".removeprefix("gs://"), b"Coronavirus\n")
    for file in tiny_run.tokenizer.iterdir():
        bucket_server.put(f"{bucket}/run/tokenizer/{file.name}".removeprefix("gs://"), file.read_bytes())
    bucket_server.put(f"{bucket}/vocab.txt".removeprefix("gs://"), (tiny_run.tokenizer / "vocab.txt").read_bytes())
    made = [f"{bucket}/vocab.extended.txt", *[f"{bucket}/new/longer.txt"] * 3, str(tmp_path / "longer.txt")]
    given = ["vocab.txt", "run", "run/tokenizer", "run/tokenizer/vocab.txt", "run"]
    for vocabulary, longer in zip(given, map(place_of, made), strict=True):
        line = ["vocab", "--extend", f"{bucket}/{vocabulary}", "--words", f"{bucket}/words.txt"]
        assert run(line if "extended" in longer.name else [*line, "--output", str(longer)]) == 0
        assert capsys.readouterr().out.replace("\n", "").endswith(str(longer))
        assert longer.read_text().splitlines() == [*load_tokenizer(tiny_run.path).vocabulary.pieces, "coronavirus"]
        longer.unlink()
    before = dict(bucket_server.objects)
    assert "no file of words at gs://" in refused(capsys, *line[:-1], f"{bucket}/absent.txt")
    assert "exists already" in refused(capsys, *line, "--output", f"{bucket}/run/tokenizer/vocab.txt")
    assert bucket_server.objects == before


@pytest.mark.parametrize("given", ["", "tokenizer", "tokenizer/vocab.txt", "checkpoints/00000012/tokenizer"])
def test_nothing_is_written_into_a_run_unasked(tiny_run, tmp_path, capsys, given):
    (tmp_path / "words.txt").write_text("Coronavirus\n")
    said = refused(capsys, "vocab", "--extend", tiny_run.path / given, "--words", tmp_path / "words.txt")
    assert "belongs to a run or model, whose folder takes no other files; name the file to write, such as --o" in said
    assert not list(tiny_run.path.rglob("*extended*"))


def test_words_that_the_vocabulary_writes_without_their_letters_are_told(tiny_run, tmp_path, capsys):
    words, longer = tmp_path / "words.txt", tmp_path / "longer.txt"
    words.write_text("ġie\nzebra\nžewġ\nđak\n")
    line = ["vocab", "--extend", str(tiny_run.path), "--words", str(words), "--output", str(longer)]
    assert run(line) == 0
    said = capsys.readouterr().err
    assert "50.0% of the words lose letters or accents" in said and "ġie → gie, žewġ → zewg; they are added" in said
    assert longer.read_text().splitlines()[-4:] == ["gie", "zebra", "zewg", "đak"]
    words.write_text("Yak\nđak\n")
    assert run([*line[:-1], str(tmp_path / "other.txt")]) == 0
    assert not capsys.readouterr().err


def test_words_of_a_text_are_proposed_and_what_they_save_is_told(tiny_run, tmp_path, capsys):
    text, longer = tmp_path / "text.txt", tmp_path / "longer.txt"
    text.write_text("The coronavirus, a coronavirus of the dog.\n" * 5 + "the xylophonist\n")
    (tmp_path / "words.txt").write_text("zebra\n")
    line = ["vocab", "--extend", str(tiny_run.path), "--source", str(text), "--output", str(longer)]
    assert run([*line, "--count", "1", "--words", str(tmp_path / "words.txt")]) == 0
    said = capsys.readouterr().out
    before = load_tokenizer(tiny_run.path)
    pieces = len(before.encode("coronavirus"))
    assert f"coronavirus │          10 │{pieces:>7} │{10 * (pieces - 1):>6}" in said
    assert longer.read_text().splitlines() == [*before.vocabulary.pieces, "zebra", "coronavirus"]
    saved = 1000 * 10 * (pieces - 1) / 37
    assert f"{saved:,.0f} saved" in said and "152 pieces (2 words added" in said
    assert "--count=3 has no effect without --source" in refused(
        capsys, "vocab", "--extend", tiny_run.path, "--count", "3", "--words", text
    )
    text.write_text("ⲁⲩⲱ ⲁⲩⲱ ⲁⲩⲱ ⲁⲩⲱ ⲁⲩⲱ ⲁⲩⲱ\n")
    longer.unlink()
    assert run(line) == 2
    assert "has no words to add" in capsys.readouterr().err and not longer.exists()
