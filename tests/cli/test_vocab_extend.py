"""bert-jax vocab --extend: a vocabulary with more words and markers."""

import shutil

import pytest

from bert_jax.system.bucket import place_of
from bert_jax.text.tokenizer import load_tokenizer


def test_a_vocabulary_is_made_longer(tiny_run, tmp_path, done):
    shutil.copytree(tiny_run.tokenizer_directory, tmp_path / "run" / "tokenizer")
    words, longer = tmp_path / "words.txt", tmp_path / "longer.txt"
    words.write_text("Coronavirus\nthe\n\nx-ray\n")
    for given in ("run", "run/tokenizer", "run/tokenizer/vocab.txt"):
        said = done("vocab", "--extend", tmp_path / given, "--words", words, "--output", longer).out
        assert "151 pieces (1 word added, 1 known already, 1 left out" in said
        assert longer.read_text().splitlines() == [*load_tokenizer(tiny_run.path).vocabulary.pieces, "coronavirus"]
        longer.unlink()
    shutil.copy(tiny_run.tokenizer_directory / "vocab.txt", tmp_path)
    longer = tmp_path / "vocab.extended.txt"
    done("vocab", "--extend", tmp_path / "vocab.txt", f"--words={words}")
    (tmp_path / "markers.txt").write_text("[E11]\n<num>\n")
    marked = tmp_path / "run" / "vocab.extended.json"
    said = done("vocab", "--extend", longer, "--markers", tmp_path / "markers.txt", "--output", marked).out
    assert "153 pieces (0 words added, 0 known already" in said
    assert load_tokenizer(marked).encode("[E11]<num>") == [151, 152]


def test_a_vocabulary_in_a_bucket_is_made_longer(tiny_run, bucket_server, bucket, tmp_path, done, refused):
    bucket_server.put(f"{bucket}/words.txt".removeprefix("gs://"), b"Coronavirus\n")
    for file in tiny_run.tokenizer_directory.iterdir():
        bucket_server.put(f"{bucket}/run/tokenizer/{file.name}".removeprefix("gs://"), file.read_bytes())
    bucket_server.put(
        f"{bucket}/vocab.txt".removeprefix("gs://"), (tiny_run.tokenizer_directory / "vocab.txt").read_bytes()
    )
    made = [f"{bucket}/vocab.extended.txt", *[f"{bucket}/new/longer.txt"] * 3, str(tmp_path / "longer.txt")]
    given = ["vocab.txt", "run", "run/tokenizer", "run/tokenizer/vocab.txt", "run"]
    for vocabulary, longer in zip(given, map(place_of, made), strict=True):
        line = ["vocab", "--extend", f"{bucket}/{vocabulary}", "--words", f"{bucket}/words.txt"]
        said = done(*line if "extended" in longer.name else [*line, "--output", longer]).out
        assert said.replace("\n", "").endswith(str(longer))
        assert longer.read_text().splitlines() == [*load_tokenizer(tiny_run.path).vocabulary.pieces, "coronavirus"]
        longer.unlink()
    before = dict(bucket_server.objects)
    assert "no file of words at gs://" in refused(*line[:-1], f"{bucket}/absent.txt")
    assert "exists already" in refused(*line, "--output", f"{bucket}/run/tokenizer/vocab.txt")
    assert bucket_server.objects == before


@pytest.mark.parametrize("given", ["", "tokenizer", "tokenizer/vocab.txt", "checkpoints/00000012/tokenizer"])
def test_nothing_is_written_into_a_run_unasked(tiny_run, tmp_path, refused, given):
    (tmp_path / "words.txt").write_text("Coronavirus\n")
    said = refused("vocab", "--extend", tiny_run.path / given, "--words", tmp_path / "words.txt")
    assert "belongs to a run or model, whose folder takes no other files; name the file to write, such as --o" in said
    assert not list(tiny_run.path.rglob("*extended*"))


def test_words_that_the_vocabulary_writes_without_their_letters_are_told(tiny_run, tmp_path, done):
    words, longer = tmp_path / "words.txt", tmp_path / "longer.txt"
    words.write_text("ġie\nzebra\nžewġ\nđak\n")
    line = ["vocab", "--extend", tiny_run.path, "--words", words, "--output"]
    said = done(*line, longer).err
    assert "50.0% of the words lose letters or accents" in said and "ġie → gie, žewġ → zewg; they are added" in said
    assert longer.read_text().splitlines()[-4:] == ["gie", "zebra", "zewg", "đak"]
    words.write_text("Yak\nđak\n")
    assert not done(*line, tmp_path / "other.txt").err


def test_words_of_a_text_are_proposed_and_what_they_save_is_told(tiny_run, tmp_path, done, refused):
    text, longer = tmp_path / "text.txt", tmp_path / "longer.txt"
    text.write_text("The coronavirus, a coronavirus of the dog.\n" * 5 + "the xylophonist\n")
    (tmp_path / "words.txt").write_text("zebra\n")
    line = ["vocab", "--extend", tiny_run.path, "--source", text, "--output", longer]
    said = done(*line, "--count", "1", "--words", tmp_path / "words.txt").out
    before = load_tokenizer(tiny_run.path)
    pieces = len(before.encode("coronavirus"))
    assert f"coronavirus │          10 │{pieces:>7} │{10 * (pieces - 1):>6}" in said
    assert longer.read_text().splitlines() == [*before.vocabulary.pieces, "zebra", "coronavirus"]
    saved = 1000 * 10 * (pieces - 1) / 37
    assert f"{saved:,.0f} saved" in said and "152 pieces (2 words added" in said
    text.write_text("ⲁⲩⲱ ⲁⲩⲱ ⲁⲩⲱ ⲁⲩⲱ ⲁⲩⲱ ⲁⲩⲱ\n")
    longer.unlink()
    assert "has no words to add" in refused(*line) and not longer.exists()
