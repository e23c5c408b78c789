"""Words, phrases and entities are found where a slow, plain search on words finds them, whatever was written how."""

import copy
import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prepared_sets import build, read_all
from trained_tokenizers import trained

from bert_jax.config.data import DataConfig
from bert_jax.instances.chunk_worker import encode_text
from bert_jax.instances.marks import Marker
from bert_jax.instances.prepared_data import Recipe
from bert_jax.instances.sentences import encode_documents
from bert_jax.instances.statistics import Statistics
from bert_jax.layout import ENTITY_START, MASKABLE, PHRASE_START, WORD_START
from bert_jax.system.errors import UsageError
from bert_jax.text.lexicon import Lexicon, Speller
from bert_jax.text.segmentation import open_segmenter
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

PIECES = ["a", "b", "c", "##a", "##b", "##c", "##bc", "ab", "中", "国", "人", ",", "."]
TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *PIECES]))
WORDS = st.text("abc", min_size=1, max_size=4) | st.sampled_from(["中", "国", "人", ",", "."])
ENTRIES = st.lists(st.lists(WORDS, min_size=1, max_size=3), min_size=1, max_size=8)
SENTENCES = st.lists(st.lists(WORDS, min_size=1, max_size=12), min_size=1, max_size=4)


def disguised(words, draw):
    """The same words for the tokenizer: other case, accents, control characters, more space."""
    ways = (str, str.upper, lambda word: f"{word}\u0301", lambda word: f"\u200b{word}", lambda word: f"{word}\x07 ")
    return " ".join(draw(st.sampled_from(ways))(word) for word in words)


def marked(sentences, tokenizer=TOKENIZER, **data):
    text = encode_documents([sentences], tokenizer)
    return text, Marker(tokenizer, DataConfig(**data)).mark(text)


def lexicon(path, entries):
    path.write_text("\n".join(entries) + "\n", encoding="utf-8")
    return str(path)


def searched(words, entries):
    """Begin and end of the entries in a list of words: from left to right, the longest at each place."""
    found, at = [], 0
    while at < len(words):
        longest = max((len(entry) for entry in entries if words[at : at + len(entry)] == entry), default=0)
        if longest:
            found.append((at, at + longest))
        at += max(longest, 1)
    return found


@given(ENTRIES, SENTENCES, st.data())
@settings(deadline=None)
@pytest.mark.long
def test_entries_are_found_as_a_plain_search_on_words_finds_them(tmp_path_factory, entries, sentences, data):
    path = lexicon(tmp_path_factory.getbasetemp() / "lexicon.txt", [" ".join(entry) for entry in entries])
    text, marks = marked([disguised(words, data.draw) for words in sentences], phrases=path)
    words = np.flatnonzero(marks.units & WORD_START > 0)
    assert len(words) == sum(map(len, sentences))
    expected, before = [], 0
    for sentence in sentences:
        inner = [at for begin, end in searched(sentence, entries) for at in range(begin + 1, end)]
        expected += [at not in inner for at in range(len(sentence))]
        before += len(sentence)
    assert (marks.units[words] & PHRASE_START > 0).tolist() == expected
    assert not (marks.units & ENTITY_START).any()
    others = np.setdiff1d(np.arange(len(text.tokens)), words)
    assert (marks.units[others] == MASKABLE).all()
    assert marks.counts["phrases"] == sum(len(searched(sentence, entries)) for sentence in sentences)


def test_without_settings_words_are_the_tokenizers():
    text, marks = marked(["ab abc", "中国 c"])
    starts = TOKENIZER.starts_word[text.tokens]
    assert np.array_equal(marks.units, np.where(starts, MASKABLE | WORD_START, MASKABLE))
    assert marks.counts == {"words": 5}


@pytest.mark.parametrize("leading_space", [True, False])
def test_sentences_have_the_pieces_of_running_text_and_begin_a_word(leading_space, tmp_path):
    contents = copy.deepcopy(trained("byte_bpe", lowercase=False).contents)
    contents["pre_tokenizer"]["add_prefix_space"] = leading_space
    tokenizer = Tokenizer(contents)
    tokenizer.save(tmp_path / "tokenizer")
    texts = "The quick fox jumped. The dogs jumped over.", "中文新闻。中文报纸。"
    prepared_as = Recipe(DataConfig(), 32, 0, tmp_path / "tokenizer")
    text, marks = encode_text([[paragraph] for paragraph in texts], prepared_as, 0)
    english, chinese = (text.tokens[text.ends[begin] : text.ends[begin + 2]].tolist() for begin in (0, 2))
    assert english == tokenizer.encode(texts[0])
    assert leading_space or chinese == tokenizer.encode(texts[1])
    assert (marks.units[text.ends[:-1]] == MASKABLE | WORD_START).all()


@pytest.mark.parametrize("kind, size", [("unigram", 29), ("bpe", 60), ("byte_bpe", 300)])
def test_other_vocabularies_find_entries_of_scripts_with_and_without_spaces(kind, size):
    sentences = ["the old house of the garden stands", "the garden of the old house", "中国人在花园", "花园在中国"]
    tokenizer = trained(kind, size, tuple(sentences) * 40)
    speller = Speller(tokenizer)
    entries = Lexicon(["Old House", "house of", "arden", "中国", "zebra"], speller)
    text = encode_documents([sentences], tokenizer)
    begins = np.isin(np.arange(len(text.tokens)), text.ends)
    found = entries.matches(speller.marked(text.tokens, begins))
    spelled = [tokenizer.decode(text.tokens[begin:end].tolist()) for begin, end in found]
    assert spelled[:2] == ["old house"] * 2 and set(spelled[2:]) <= {"中国"}
    assert entries.unknown == (kind != "byte_bpe")  # to which no text is unknown


def test_units_longer_than_the_budget_are_counted(tmp_path):
    path = lexicon(tmp_path / "p.txt", ["a b c", "a b"])
    _, marks = marked(["a b c a abc b a b", "a b c"], phrases=path)
    assert marks.sizes == {"phrases 3": 2, "phrases 2": 1, "words 1": 10, "words 2": 1}
    seen = Statistics(tokens=12, units=marks.counts, unit_sizes=marks.sizes) + Statistics(unit_sizes=marks.sizes)
    assert [seen.longer("phrases", budget) for budget in (1, 2, 3)] == [6, 4, 0]
    assert ("phrases of over 2 tokens, never masked whole", "4") in seen.table(32, budget=2)
    assert seen.units_json(2)["phrase"]["longer"] == 4 and seen.units_json(2)["word"]["longer"] == 0


def test_a_segmenter_gives_words_and_phrases_cut_them(tmp_path, monkeypatch):
    module = types.ModuleType("pairs_of_characters")
    module.cut = lambda text: range(0, len(text) + 1, 2)
    monkeypatch.setitem(sys.modules, "pairs_of_characters", module)
    text, marks = marked(["中国人中", "国人"], words="pairs_of_characters:cut")
    assert (marks.units & WORD_START > 0).tolist() == [True, False, True, False, True, False]
    path = lexicon(tmp_path / "entities.txt", ["国人"])
    text, marks = marked(["中国人中", "国人"], words="pairs_of_characters:cut", entities=path)
    assert (marks.units & WORD_START > 0).tolist() == [True, True, True, True, True, False]
    assert (marks.units & ENTITY_START > 0).tolist() == [True, True, False, True, True, False]


@pytest.mark.parametrize(
    "segmenter, module, words",
    [("jieba", "jieba", "我 来到 北京 清华大学"), ("sudachi", "sudachipy", "東京 大学 で 漫画 を 研究 し た")],
)
def test_words_of_chinese_and_japanese_are_found(segmenter, module, words):
    pytest.importorskip(module)
    text = words.replace(" ", "")
    tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *sorted(set(text)), "##た", "##で", "##を", "##し"]))
    _, marks = marked([text], tokenizer, words=segmenter)
    expected = [number == 0 for word in words.split() for number in range(len(word))]
    assert (marks.units & WORD_START > 0).tolist() == expected


def test_a_text_may_be_longer_than_sudachi_takes_at_once():
    pytest.importorskip("sudachipy")
    places = open_segmenter("sudachi")("漫画" * 20_000)
    assert places[-1] == 40_000


def failing(text):
    raise KeyError("no\nsuch word")


@pytest.mark.parametrize(
    "words, told",
    [
        ("no_such_module:cut", "can't be imported (ModuleNotFoundError"),
        ("math:no_such", "can't be imported (AttributeError"),
        ("math:pi", "name a function"),
        ("builtins:list", "gave ['a', 'b'] for the text 'ab'"),
        ("this_test:failing", "failed (KeyError: 'no"),
        ("this_test:beyond", "gave [0, 9] for the text 'ab'; give ascending numbers of characters from 0 to 2"),
        ("this_test:backwards", "gave [2, 1]"),
    ],
)
def test_a_segmenter_that_fails_is_one_line(words, told, monkeypatch):
    module = types.ModuleType("this_test")
    module.failing, module.beyond, module.backwards = failing, lambda text: [0, 9], lambda text: [2, 1]
    monkeypatch.setitem(sys.modules, "this_test", module)
    with pytest.raises(UsageError) as error:
        marked(["ab"], words=words)
    assert told in str(error.value) and words in str(error.value) and "\n" not in str(error.value)


def test_lines_of_no_use_are_counted(tmp_path, capsys):
    path = lexicon(tmp_path / "p.txt", ["a b", "", "a b", "A  B", "xyz", "c"])
    Marker(TOKENIZER, DataConfig(phrases=path)).report_unused_entries()
    said = " ".join(capsys.readouterr().err.split())
    assert "1 blank, 1 doubled, 1 which the tokenizer treats as an earlier one, 1 with pieces that the vocab" in said


@pytest.mark.parametrize(
    "content, told", [(None, "No such file"), (b"\n \n", "has no entry"), (b"ab\n\xff\xfe\n", "line 2 isn't UTF-8")]
)
def test_a_file_that_is_no_lexicon_is_one_line(tmp_path, content, told):
    path = tmp_path / "lexicon.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=rf"--data.entities={path}.*{told}"):
        marked(["ab"], entities=str(path))


def test_marked_data_differ_by_what_a_lexicon_holds_not_by_its_place(recipe, tmp_path):
    first, second = (lexicon(tmp_path / name, ["the old", "a small"]) for name in ("first.txt", "second.txt"))
    of = lambda path: recipe._replace(data=recipe.data.replace(phrases=path)).fingerprint()
    same = of(first) == of(second)
    lexicon(tmp_path / "second.txt", ["the old"])
    assert same and of(first) != of(second) and of(first) != recipe.fingerprint()
    made = build(recipe._replace(data=recipe.data.replace(phrases=first)), tmp_path / "data")
    units = read_all(tmp_path / "data").units
    words, phrases = (units & bit > 0 for bit in (WORD_START, PHRASE_START))
    assert made.train.units["phrases"] > 0 and phrases.sum() < words.sum() and not (phrases & ~words).any()
    shown = dict(made.train.table(32, 5))
    assert float(shown["tokens of a phrase"]) >= 2 and "phrases a thousand tokens" in shown
