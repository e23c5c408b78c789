import gzip
import random
import shutil
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from conftest import stories, story
from prepared_sets import build, files, read_all

from bert_jax.config.operation import PreparationConfig
from bert_jax.instances import chunk_worker, held_out, preparation, prepared_data
from bert_jax.instances.chunk_worker import PendingSet
from bert_jax.instances.chunks import cut_chunks
from bert_jax.instances.held_out import is_held_out
from bert_jax.instances.preparation import prepare
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.records.corpus import open_corpus
from bert_jax.system import progress
from bert_jax.system.errors import RunError, UsageError
from bert_jax.text.tokenizer import load_tokenizer


def test_the_files_are_the_same_whatever_the_number_of_processes(recipe, whole, tmp_path):
    build(recipe, tmp_path / "2", processes=2)
    one = files(whole)
    assert len([name for name in one if name.startswith("train-")]) >= 3 and one == files(tmp_path / "2")


def test_a_preparation_that_stops_goes_on_at_the_next_chunk(recipe, whole, tmp_path, monkeypatch, capsys):
    written, real = [], chunk_worker.write_shard

    def full_at_the_third(path, *rest):
        if len(written) == 2:
            raise RunError("no space left")
        written.append(path.name)
        return real(path, *rest)

    with monkeypatch.context() as context, pytest.raises(RunError, match="no space left"):
        context.setattr(chunk_worker, "write_shard", full_at_the_third)
        build(recipe, tmp_path / "a")
    assert len(list((tmp_path / "a" / "chunks").glob("*.json"))) == 2 and PreparedData.open(tmp_path / "a") is None
    monkeypatch.setattr(chunk_worker, "write_shard", lambda path, *rest: written.append(path.name) or real(path, *rest))
    build(recipe, tmp_path / "a")
    assert len(set(written)) == len(written) > 3  # no shard twice
    assert files(tmp_path / "a") == files(whole) and "anew" not in capsys.readouterr().err


@pytest.fixture
def encoded(monkeypatch):
    """Notes how many documents are in each text that is encoded."""
    real, counts = chunk_worker.encode_documents, []

    def noted(documents, tokenizer):
        documents = list(documents)
        counts.append(len(documents))
        return real(documents, tokenizer)

    monkeypatch.setattr(chunk_worker, "encode_documents", noted)
    return counts


@pytest.mark.parametrize("held_out", [0.1, 1e-6])  # with so few documents their ends are held out
def test_several_lengths_are_those_of_each_alone_and_the_text_is_encoded_once(recipe, tmp_path, encoded, held_out):
    recipe = recipe._replace(data=recipe.data.replace(held_out=held_out))
    lengths = {str(length): recipe._replace(length=length) for length in (32, 64, 16)}
    for name, one in lengths.items():
        build(one, tmp_path / "alone" / name)
    alone, encoded[:] = list(encoded), []
    together = {tmp_path / "together" / name: one for name, one in lengths.items()}
    made = list(prepare(open_corpus(recipe.data), together, PreparationConfig(processes=1)))
    assert encoded * 3 == alone
    assert [one.length for one in made] == [32, 64, 16]
    assert files(tmp_path / "together") == files(tmp_path / "alone")


def test_of_several_lengths_each_is_finished_by_itself(recipe, tmp_path, encoded):
    lengths = {tmp_path / "a" / name: recipe._replace(length=int(name)) for name in ("32", "64")}
    build(recipe._replace(length=64), tmp_path / "alone")
    for made in prepare(open_corpus(recipe.data), lengths, PreparationConfig(processes=1)):
        break  # stopped after the first
    first, second = lengths
    assert made.length == 32 and PreparedData.open(first).as_sealed() == made.as_sealed()
    assert PreparedData.open(second) is None
    encoded.clear()
    build(lengths[second], second)
    assert len(encoded) == 1  # the held-out documents: its chunks were finished
    assert files(second) == files(tmp_path / "alone")


def test_a_chunk_is_prepared_for_the_lengths_that_lack_it(recipe, tmp_path, encoded):
    targets = [PendingSet(recipe._replace(length=length), tmp_path / str(length), "shape") for length in (32, 64)]
    for target in targets:
        (target.directory / "chunks").mkdir(parents=True)
    chunk, other, *_ = cut_chunks(open_corpus(recipe.data).portions(), 20_000)
    whole = [record.as_sealed() for record, _ in chunk_worker.prepare_unless_finished(chunk, targets)]
    before = files(tmp_path)
    (tmp_path / "64" / "train-00000.array_record").write_bytes(b"")
    written = (tmp_path / "32" / "train-00000.array_record").stat().st_mtime_ns
    (first, nothing), (second, remark) = chunk_worker.prepare_unless_finished(chunk, targets)
    assert [first.as_sealed(), second.as_sealed()] == whole and nothing is None and "is not as it was written" in remark
    assert files(tmp_path) == before and (tmp_path / "32" / "train-00000.array_record").stat().st_mtime_ns == written
    finished = chunk_worker.prepare_unless_finished(chunk, targets)
    assert [(record.as_sealed(), remark) for record, remark in finished] == [(each, None) for each in whole]
    assert len(encoded) == 2


def test_what_was_seen_is_right(whole, corpus):
    prepared = PreparedData.open(whole)
    seen, documents = prepared.train, corpus.read_text().split("\n\n")
    assert seen.documents + prepared.held_out.documents + prepared.held_out_dropped == len(documents)
    all_of_them = read_all(whole)
    assert seen.instances == all_of_them.sequences
    assert seen.instance_tokens == len(all_of_them.ids)
    assert seen.random_pairs == all_of_them.pair_label.sum()
    assert prepared.piece_counts.sum() == seen.tokens
    assert prepared.piece_counts[1] == seen.unknown_tokens == 0
    rows = dict(seen.table(32, 5))
    assert rows["padding"].endswith("%") and rows["instances"] == f"{seen.instances:,}"
    examples = prepared.example_sentences
    assert 1 <= len(examples) and all(40 <= len(text) <= 120 for text in examples)


def test_the_warning_counts_the_characters_behind_unknown_pieces(recipe_for, tmp_path, capsys):
    thai = "\u0e01"
    text = "\n\n".join(f"the {30 * thai} the the the the {seed}" for seed in range(30))
    seen = build(recipe_for(text, held_out=0.0), tmp_path / "out").train
    assert seen.unknown_tokens == 30 and seen.unknown_characters == 30 * 30
    assert seen.characters == 30 * 45 + 10 + 20 * 2
    said = capsys.readouterr().err
    assert f"and {seen.unknown_character_share:.1%} of its characters are behind them" in said


def test_held_out_documents_that_share_a_long_paragraph_with_training_are_dropped(recipe_for, tmp_path):
    own = "Of its own, as document {} has it, and quite long enough to be compared here."
    shared = "This paragraph stands in every second document and is long enough to be compared with others."
    texts = [["History.", *story(seed), own.format(seed), *[shared] * (seed % 2)] for seed in range(80)]
    recipe = recipe_for("\n\n".join("\n".join(text) for text in texts), held_out=0.3)
    prepared = build(recipe, tmp_path / "out")
    chosen = [document for document in open_corpus(recipe.data).documents() if is_held_out(document, 0.3)]
    assert prepared.held_out_dropped == sum(shared in document for document in chosen) > 3
    assert prepared.held_out.documents == sum(shared not in document for document in chosen) > 3


def test_held_out_text_is_bounded(stopped, recipe, whole, monkeypatch):
    all_of_it = PreparedData.open(whole)
    monkeypatch.setattr(held_out, "HELD_OUT_BYTES", 4000)
    bounded = build(recipe, stopped)
    assert 1 < bounded.held_out.documents < all_of_it.held_out.documents
    assert bounded.train == all_of_it.train


def test_the_choice_of_held_out_documents_is_a_matter_of_their_text():
    documents = [story(seed) for seed in range(2000)]
    chosen = [is_held_out(document, 0.2) for document in documents]
    assert 0.15 < np.mean(chosen) < 0.25
    assert chosen == [is_held_out(document, 0.2) for document in documents]
    assert not any(is_held_out(document, 0.0) for document in documents)
    assert all(is_held_out(document, 0.5) for document, held in zip(documents, chosen) if held)  # shares nest


def test_a_file_of_sentences_is_not_split_further(recipe_for, tmp_path, capsys):
    text = "One two. Three four.\nFive six.\n\nSeven eight.\n"
    as_lines = build(recipe_for(text, held_out=0.0, layout="sentences"), tmp_path / "lines")
    as_paragraphs = build(recipe_for(text, held_out=0.0), tmp_path / "paragraphs")
    assert (as_lines.train.sentences, as_paragraphs.train.sentences) == (3, 4)
    assert as_lines.held_out.documents == 0 and "held out instead" not in capsys.readouterr().err


@pytest.mark.parametrize("text, count", [("", 0), ("\n \n\n", 0), ("One document only. It has two sentences.", 1)])
def test_too_little_text_is_refused(recipe_for, tmp_path, text, count):
    with pytest.raises(UsageError, match=f"holds {count} documents? and .*(needs two.*pair none|one is needed)"):
        build(recipe_for(text, held_out=0.0), tmp_path / "out")


def test_a_shard_cut_short_is_named_when_the_set_is_opened(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "a")
    shard = tmp_path / "a" / "train-00001.array_record"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(RunError, match=r"train-00001.*its size is .* and should be .* bytes.*delete"):
        PreparedData.open(tmp_path / "a")
    shard.unlink()
    with pytest.raises(RunError, match="its size is 0 and should be"):
        PreparedData.open(tmp_path / "a")


def test_what_other_settings_left_is_not_taken_for_finished(stopped, recipe, whole, monkeypatch):
    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):  # after a shard, before its record
        context.setattr(chunk_worker, "write_numbers", Mock(side_effect=KeyboardInterrupt))
        build(recipe._replace(seed=8), stopped)
    build(recipe, stopped)
    assert files(stopped) == files(whole)


def test_half_a_deletion_leaves_no_data_set(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(prepared_data, "remove_directory", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        prepared_data.discard(tmp_path)
    assert PreparedData.open(tmp_path) is None


@pytest.fixture
def mixed(recipe_for):
    """A recipe for three sources of different size."""
    return recipe_for(stories(60), stories(20, 200), stories(90, 400), held_out=0.2, chunk_megabytes=0.01)


def test_several_sources_lie_one_after_the_other_and_none_is_paired_with_another(mixed, tmp_path):
    prepared = build(mixed, tmp_path / "out")
    assert len(prepared.sources) == 3 and sum(prepared.sources) == prepared.train.instances
    assert PreparedData.open(tmp_path / "out").as_sealed() == prepared.as_sealed()
    recipes = [mixed._replace(data=mixed.data.replace(source=source)) for source in mixed.data.source]
    alone = [build(recipe, tmp_path / f"only-{number}") for number, recipe in enumerate(recipes)]
    assert prepared.train.documents == sum(one.train.documents for one in alone)
    assert prepared.held_out.documents == sum(one.held_out.documents for one in alone)
    assert np.array_equal(prepared.piece_counts, sum(one.piece_counts for one in alone))
    # The first source's chunks have the numbers that they have alone, so its records are the very same.
    assert prepared.sources[0] == alone[0].train.instances
    ours, theirs = read_all(tmp_path / "out").ids, read_all(tmp_path / "only-0").ids
    assert np.array_equal(ours[: len(theirs)], theirs)


def test_pairs_of_a_source_hold_only_its_pieces_in_training_and_held_out(recipe_for, tokenizer_directory, tmp_path):
    letters, texts = ("abc", "def"), []
    for own in letters:
        lines = [" ".join(random.Random(number).choices(own, k=40)) + "." for number in range(400)]
        texts.append("\n\n".join("\n".join(lines[at : at + 2]) for at in range(0, 400, 2)))
    prepared = build(recipe_for(*texts, held_out=0.3, chunk_megabytes=0.005), tmp_path / "out")
    ids = load_tokenizer(tokenizer_directory).vocabulary.ids
    theirs = [{ids[letter] for letter in own} for own in letters]
    for split in ("train", "held_out"):
        kinds, every = [], read_all(tmp_path / "out", split)
        for begin, end in zip(every.ends, every.ends[1:]):
            seen = set(every.ids[begin:end].tolist())
            assert len({number for number, own in enumerate(theirs) if seen & own}) == 1
            kinds.append(bool(seen & theirs[1]))
        assert kinds == sorted(kinds)
        if split == "train":
            assert [kinds.count(False), kinds.count(True)] == prepared.sources


def test_each_source_is_split_by_the_rules_of_its_language(recipe_for, tmp_path):
    text = "Am 3. Mai kam er z.B. nach Hause. Er ging.\n\n" * 2

    def sentences(language):
        recipe = recipe_for(text, text, held_out=0.0, language=language)
        return build(recipe, tmp_path / "".join(language)).train.sentences

    english, german = sentences(("en",)), sentences(("de",))
    assert english != german and sentences(("en", "de")) == sentences(("de", "en")) == (english + german) / 2


def test_a_source_with_too_little_text_is_named(mixed, tmp_path):
    (tmp_path / "b.txt").write_text("One document.")
    with pytest.raises(UsageError, match=r"b\.txt' holds 1 document and .* needs two"):
        build(mixed._replace(data=mixed.data.replace(held_out=0.0)), tmp_path / "out")


def test_where_the_tokenizer_came_from_does_not_shape_the_records(mixed):
    before = mixed.fingerprint()
    origin = mixed.tokenizer_directory / "origin.json"
    origin.write_text('{"weights": [1, 2]}')
    assert before == mixed.fingerprint()
    origin.unlink()


def test_text_that_moved_to_another_source_is_prepared_again(mixed, tmp_path, monkeypatch):
    (tmp_path / "b.txt").write_text(stories(20, 60))
    mixed = mixed._replace(data=mixed.data.replace(chunk_megabytes=1.0))
    chunks = [chunk for chunk in cut_chunks(open_corpus(mixed.data).portions(), 10**6)]
    (tmp_path / "out" / "chunks").mkdir(parents=True)
    for source in (1, 0):
        moved = replace(chunks[0], source=source)
        ((record, _),) = chunk_worker.prepare_unless_finished(moved, [PendingSet(mixed, tmp_path / "out", "shape")])
        assert record.source == source


def test_dupe_factor_cuts_training_documents_again_and_otherwise(recipe, whole, tmp_path):
    once = PreparedData.open(whole)
    twice = build(recipe._replace(data=recipe.data.replace(dupe_factor=2)), tmp_path / "twice")
    assert (twice.train.documents, twice.train.tokens) == (once.train.documents, once.train.tokens)
    assert 1.9 < twice.train.instances / once.train.instances < 2.1
    assert twice.held_out == once.held_out
    all_of_them = read_all(tmp_path / "twice")
    rows = [all_of_them.ids[begin:end].tobytes() for begin, end in zip(all_of_them.ends, all_of_them.ends[1:])]
    assert len(set(rows)) > 0.95 * len(rows)


@pytest.mark.parametrize("sentences", [1, 12])
def test_a_preparation_whose_second_segments_are_random_says_so(recipe_for, tmp_path, sentences, capsys):
    documents = stories(200).split("\n\n")
    short, long = ([text.split(".")[0] + "." for text in documents], [" ".join([text] * 3) for text in documents])
    prepared = build(recipe_for("\n\n".join(short if sentences == 1 else long), held_out=0.0), tmp_path / "out")
    said = "of the second segments are random: documents are too short for pairs; " in capsys.readouterr().err
    assert said == (sentences == 1) == (prepared.train.random_share > 0.7)


def test_one_document_is_enough_without_pairs(recipe_for, tmp_path):
    recipe = recipe_for(stories(1), pair="none", held_out=0.0, short_sequence_probability=0.0)
    prepared, found = build(recipe, tmp_path / "out"), read_all(tmp_path / "out")
    assert prepared.train.tokens == prepared.train.instance_tokens - 2 * prepared.train.instances
    assert found.first_length.tolist() == np.diff(found.ends).tolist() and not found.pair_label.any()
    assert "random second segments" not in dict(prepared.train.table(32, 5))


@pytest.mark.parametrize("suffix, unit, note", [("txt", "MB", ""), ("txt.gz", "MB compressed", "3 MB of text")])
def test_the_bar_of_compressed_files_tells_how_much_text_was_read(recipe, tmp_path, monkeypatch, suffix, unit, note):
    text = stories(20).encode() * 210
    (tmp_path / f"a.{suffix}").write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    recipe = recipe._replace(data=recipe.data.replace(source=f"text:{tmp_path}/a.{suffix}", chunk_megabytes=1.0))
    shown = []
    monkeypatch.setattr(preparation, "prepare_unless_finished", lambda *_, **__: [(None, None)])
    seen = lambda stage: shown.append((stage.done, stage.total, stage.unit, stage.note))
    monkeypatch.setattr(progress._PlainStage, "show", seen)
    corpus = open_corpus(recipe.data)
    pending = PendingSet(recipe, tmp_path, "shape")
    list(preparation._prepared_by_chunks(corpus, [pending], PreparationConfig(processes=1)))
    done, total, unit_shown, note_shown = shown[-1]
    assert done == pytest.approx(total) and (unit_shown, note_shown) == (unit, note)
