"""A treebank's sentences as rows: what is read, what is held out, and where the tags are."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treebanks import conll, conllu, sentences

from bert_jax.config.data import DataConfig
from bert_jax.config.prediction import UNIVERSAL_TAGS
from bert_jax.instances.held_out import is_held_out
from bert_jax.instances.instances import UNTAGGED, Instances
from bert_jax.instances.prepared_data import HELD_OUT, TRAIN, PreparedData
from bert_jax.instances.treebank import TaggedSource, Treebank, read_treebank, treebank_hash
from bert_jax.layout import MASKABLE
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import load_tokenizer

DATA = DataConfig(held_out=0.25)


@pytest.fixture(scope="module")
def tokenizer(tokenizer_directory):
    return load_tokenizer(tokenizer_directory)


def read(path, text):
    path.write_text(text, encoding="utf-8")
    return read_treebank(str(path))


def equal(first: Instances, second: Instances) -> bool:
    pairs = zip(first, second, strict=True)
    return all(one is two is None or np.array_equal(one, two) for one, two in pairs)


def test_both_formats_give_the_same_sentences(tmp_path):
    tagged = [[*one[:-1], (".", "_")] if number % 2 else one for number, one in enumerate(sentences(9))]
    first = read(tmp_path / "a.conllu", conllu(tagged))
    assert first == read(tmp_path / "a.conll", conll(tagged))
    (tmp_path / "b.conllu.gz").write_bytes(gzip.compress(conllu(tagged).encode()))
    assert treebank_hash(read_treebank(str(tmp_path / "b.conllu.gz"))) == treebank_hash(first)
    assert [one.words for one in first] == [tuple(word for word, _ in one) for one in tagged]
    assert [one.tags[-1] == UNTAGGED for one in first] == [bool(number % 2) for number in range(9)]
    assert UNIVERSAL_TAGS[first[0].tags[1]] == "ADJ"


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("a.txt", conllu(sentences(1)), "a.txt: expected a treebank, a file named .conllu"),
        ("a.conllu", conll(sentences(1)), "line 1 has 2 columns and CoNLL-U has 10, with tabs between them; mend it"),
        ("a.conll", "word\n\n", "line 1 has no column 'tags': there is 'words'; give a file that has the word first"),
        ("a.conll", "a\tDET\nb\n", "line 2 has 1 column ('b') and should have 2: 'words', 'tags'; mend it"),
        ("a.conllu", conllu([[("cats", "NNS")]]), "'cats' has the tag 'NNS'; expected a universal part of speech (ADJ"),
        ("a.conllu", conllu([[("cats", "_")]]), "has no word with a part of speech; give a treebank"),
        ("a.conllu", "", "has no word with a part of speech; give a treebank"),
    ],
)
def test_another_file_is_refused_in_a_line(tmp_path, name, text, expected):
    with pytest.raises(UsageError) as refused:
        read(tmp_path / name, text)
    assert expected in str(refused.value) and "\n" not in str(refused.value) and "task." not in str(refused.value)


@given(st.lists(st.integers(0, len(UNIVERSAL_TAGS) - 1), min_size=60, max_size=60), st.floats(0.05, 0.5))
@settings(max_examples=20, deadline=None)
def test_no_tag_of_a_held_out_sentence_is_in_training(tokenizer, tagged, numbers, share):
    """Whatever their tags are, the training rows are the same; and no held-out text is among them."""
    data = DataConfig(held_out=share)
    held = [is_held_out([" ".join(one.words)], share) for one in tagged]
    changed = [
        one._replace(tags=tuple(numbers[place] for place in range(len(one.tags)))) if is_held else one
        for one, is_held in zip(tagged, held, strict=True)
    ]
    first, second = (Treebank.of(some, "a.conllu", tokenizer, 32, data) for some in (tagged, changed))
    assert equal(first.train, second.train)
    assert first.train.sequences == held.count(False) and first.held_out.sequences == held.count(True)
    assert equal(first.held_out._replace(tags=None), second.held_out._replace(tags=None))
    texts = [{*rows(part)} for part in first]
    assert not texts[0] & texts[1]


def rows(part: Instances) -> list[bytes]:
    return [part.ids[begin:end].tobytes() for begin, end in zip(part.ends, part.ends[1:])]


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    return read(tmp_path_factory.mktemp("treebank") / "a.conllu", conllu(sentences(80)))


def test_a_tag_is_at_the_first_piece_of_its_word_and_nothing_is_masked(tokenizer, tagged):
    treebank = Treebank.of(tagged, "a.conllu", tokenizer, 64, DATA)
    pieces, seen = tokenizer.vocabulary.pieces, []
    for part in treebank:
        assert not (part.units & MASKABLE).any()
        for begin, end in zip(part.ends, part.ends[1:]):
            words: list[list] = []
            for id, tag in zip(part.ids[begin + 1 : end - 1], part.tags[begin + 1 : end - 1]):
                if tag == UNTAGGED:
                    assert pieces[id].startswith("##")
                    words[-1][0] += pieces[id][2:]
                else:
                    words.append([pieces[id], tag])
            assert part.tags[begin] == part.tags[end - 1] == UNTAGGED  # [CLS] and [SEP]
            seen.append(tuple(map(tuple, words)))
    lowered = [tuple(zip(map(str.lower, one.words), one.tags)) for one in tagged]
    assert sorted(seen) == sorted(lowered)


def test_packed_rows_hold_several_of_the_same_sequences(tokenizer, tagged):
    apart, packed = (Treebank.of(tagged, "a", tokenizer, 64, DATA.replace(packed=which)) for which in (False, True))
    assert sorted(rows(apart.train)) == sorted(rows(packed.train))
    assert len(packed.train.row_ends) < len(apart.train.row_ends) and packed.train.rows.max() > 0
    order = [rows(apart.train).index(row) for row in rows(packed.train)]
    tags = [part.tags[part.ends[at] : part.ends[at + 1]] for at in order for part in (apart.train,)]
    assert np.array_equal(packed.train.tags, np.concatenate(tags))
    assert np.diff(packed.train.ends[packed.train.row_ends]).max() <= 64


def test_a_long_sentence_is_cut_into_parts(tokenizer, tagged):
    whole, cut = (Treebank.of(tagged, "a", tokenizer, length, DATA).train for length in (64, 8))
    assert np.diff(cut.ends).max() == 8
    for tag in range(len(UNIVERSAL_TAGS)):
        assert (cut.tags == tag).sum() == (whole.tags == tag).sum()


def test_words_that_do_not_fit_are_refused(tokenizer, tagged):
    foreign = [one._replace(words=("दिल्ली",) * len(one.words)) for one in tagged]
    with pytest.raises(UsageError, match="--objective.tags=a: 100% of its words are unknown to the vocabulary; give"):
        Treebank.of(foreign, "a", tokenizer, 64, DATA)
    [held_out] = [one for one in tagged if is_held_out([" ".join(one.words)], 0.5)][:1]
    with pytest.raises(UsageError, match="has 1 sentences, and all of them are held out by --data.held-out=0.5"):
        Treebank.of([held_out], "a", tokenizer, 64, DataConfig(held_out=0.5))


def test_its_rows_are_read_beside_those_of_the_text(whole, tokenizer, tagged):
    data, treebank = PreparedData.open(whole), Treebank.of(tagged, "a", tokenizer, 32, DATA)
    for split, part in zip((TRAIN, HELD_OUT), treebank, strict=True):
        source = TaggedSource(data, split, part)
        assert len(source.tagged) == part.sequences and source.tagged.start == len(source)
        first, text, last = source.tagged[0], len(source) - 1, source.tagged[-1]
        read_rows = source.read([first, text, last, first])
        assert [len(row) for row in np.split(read_rows.tags, read_rows.ends[1:-1])] == np.diff(read_rows.ends).tolist()
        tags = np.split(read_rows.tags, read_rows.ends[1:-1])
        assert np.array_equal(tags[0], part.tags[: part.ends[1]]) and np.array_equal(tags[0], tags[3])
        assert (tags[1] == UNTAGGED).all() and np.array_equal(tags[2], part.tags[part.ends[-2] :])
        assert np.array_equal(read_rows.ids[: part.ends[1]], part.ids[: part.ends[1]])


def test_the_most_frequent_training_tag_is_guessed(tokenizer, tagged):
    treebank = Treebank.of(tagged, "a", tokenizer, 64, DATA)
    learned, asked = (part.tags[part.tags != UNTAGGED] for part in treebank)
    assert treebank.guessed_accuracy == (asked == np.bincount(learned).argmax()).mean() > 0.2
