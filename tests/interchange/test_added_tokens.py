"""Added tokens are found in texts as transformers finds them, by a tokenizer of each relative."""

import json
import random

import pytest
from tokenizer_folders import BASES, wordpiece_file, write_vocabulary
from tokenizers import AddedToken
from trained_tokenizers import trained

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.interchange.tokenizer_files import read_tokenizer, write_tokenizer
from bert_jax.system.errors import UsageError
from bert_jax.text.extension import extend
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer
from bert_jax.text.vocabulary import MASK, SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

KINDS = ("bert", "roberta", "xlm-roberta", "albert", "xlnet", "modernbert")
ADDED = ["[E11]", "<num>", "river", "old house", "Straße", "@", "e1", " x", "ing", "中"]
WORDS = ["the", "river's", "house", "caf\u00e9", "中文", "a1", "(x)", "running", "\u00ad", "STRASSE"]
PIECES = [*SPECIAL_PIECES, *"the river ' s house cafe a ##1 ( x ) run ##ning e 中 文 ##s [ ] old".split()]


def texts(rng: random.Random, count: int) -> list[str]:
    """Words with added tokens before, within and after them."""
    written = []
    for _ in range(count):
        parts = []
        for word in rng.choices(WORDS, k=6):
            token = rng.choice(ADDED)
            parts += [word, rng.choice(["", " ", "  "]), rng.choice([token, token.upper(), ""]), rng.choice(["", " "])]
        written.append("".join(parts))
    return written


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_are_those_of_transformers(kind, transformers, tmp_path):
    rng, (source, saved, exported) = random.Random(0), (tmp_path / name for name in ("source", "saved", "exported"))
    source.mkdir()
    write_vocabulary(kind, source)
    name, special = BASES[kind]  # the class, which makes a tokenizer of its vocabulary alone
    theirs = getattr(transformers, name).from_pretrained(source, **special)
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    added = rng.sample(ADDED, 6)
    theirs.add_tokens([AddedToken(text, **{flag: rng.random() < 0.4 for flag in flags}) for text in added])
    theirs.save_pretrained(saved)
    theirs = transformers.AutoTokenizer.from_pretrained(saved)
    config = ModelConfig(model_type=kind, vocabulary_size=len(theirs))
    ours = read_tokenizer(PublishedFolder(saved), config).tokenizer
    exported.mkdir()
    write_tokenizer(ours, exported, 512)
    again = read_tokenizer(PublishedFolder(exported), config).tokenizer
    theirs_again = transformers.AutoTokenizer.from_pretrained(exported)
    found = 0
    for text in texts(rng, 100):
        expected = theirs(text, add_special_tokens=False).input_ids
        spans = ours.encode_spans(text)
        assert ours.encode(text) == again.encode(text) == [span.id for span in spans] == expected, text
        assert theirs_again(text, add_special_tokens=False).input_ids == expected, text
        for span in spans:
            if span.id in ours.added:
                found += 1
                assert ours.starts_word[span.id] and text[span.begin : span.end] == text[span.begin : span.end].strip()
        masked = f"{text[:9]}{MASK}{text[9:]}"
        as_theirs = masked.replace(MASK, theirs.mask_token)
        assert ours.encode_special(masked) == theirs(as_theirs, add_special_tokens=False).input_ids, text
    assert found > 20


E1, BOTH = "<e1>", ["<e1>", "[E1]"]
STRUCTURED = {"content": E1, "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}


@pytest.mark.parametrize(
    ("settings", "special", "whole"),
    [
        ({"extra_special_tokens": BOTH}, None, BOTH),
        ({"extra_special_tokens": {"first": "<e1>", "second": "[E1]"}}, None, BOTH),
        ({"extra_special_tokens": [STRUCTURED | {"__type": "AddedToken"}]}, None, [E1]),
        ({"additional_special_tokens": BOTH}, None, BOTH),
        ({"additional_special_tokens": ["[E1]"], "extra_special_tokens": [E1]}, None, [E1]),
        ({"additional_special_tokens": ["[E1]"], "extra_special_tokens": {"first": E1}}, None, BOTH),
        ({"bos_token": "bos", "eos_token": "[E1]"}, None, ["bos", "[E1]"]),
        ({"entity_token": E1}, None, [E1]),
        ({}, {"additional_special_tokens": BOTH, "bos_token": "bos"}, [*BOTH, "bos"]),
        (None, {"extra_special_tokens": [STRUCTURED], "eos_token": STRUCTURED | {"content": "bos"}}, [E1, "bos"]),
        ({"extra_special_tokens": ["[E1]"]}, {"additional_special_tokens": [E1]}, ["[E1]"]),
        ({"extra_special_tokens": ["[E1]"]}, {"extra_special_tokens": [E1]}, BOTH),
        ({"added_tokens_decoder": {}}, {"additional_special_tokens": BOTH}, []),
    ],
)
def test_pieces_that_the_files_call_special_are_found_whole(settings, special, whole, transformers, tmp_path):
    pieces = [*PIECES, "<", ">", "e1", "<e1>", "[E1]", "bos", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    for name, values in (("tokenizer_config.json", settings), ("special_tokens_map.json", special)):
        if values is not None:
            (tmp_path / name).write_text(json.dumps(values))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = read_tokenizer(PublishedFolder(tmp_path), ModelConfig(vocabulary_size=len(theirs)), lowercase=True).tokenizer
    assert {ours.vocabulary.pieces[number] for number in ours.added} == set(whole)
    for text in ("the <e1>river [E1] house", "BOS boss a<e1> [e1]", " <E1> [E1]s <e1>", "bos<e1>[E1]"):
        assert ours.encode(text) == theirs(text, add_special_tokens=False).input_ids, text


def test_the_added_tokens_of_an_old_folder_are_read(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    size = len(PIECES)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"covid": size, "[E11]": size + 1, "<Q>": size + 2}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"additional_special_tokens": ["<Q>"]}))
    tokenizer = read_tokenizer(PublishedFolder(tmp_path), ModelConfig(vocabulary_size=size + 3)).tokenizer
    pieces = [tokenizer.vocabulary.pieces[number] for number in tokenizer.encode("The Covids[e11] <q> <Q>a")]
    assert pieces == ["the", "covid", "s", "[E11]", "[UNK]", "[UNK]", "[UNK]", "<Q>", "a"]
    (tmp_path / "added_tokens.json").write_text(json.dumps({"covid": size + 1}))
    with pytest.raises(UsageError, match=f"'covid' has the number {size + 1} and its place is {size}"):
        read_tokenizer(PublishedFolder(tmp_path), ModelConfig(vocabulary_size=size + 3))


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe", "roberta", "albert"])
def test_markers_are_added_to_every_kind(kind, tmp_path):
    if kind == "wordpiece":
        old = WordPieceTokenizer(Vocabulary(PIECES))
    elif kind in KINDS:
        write_vocabulary(kind, tmp_path)
        model = ModelConfig(model_type=kind, vocabulary_size=5_000)
        old = read_tokenizer(PublishedFolder(tmp_path), model).tokenizer
    else:
        old = trained(kind, 21, ("the old house by the river is a house",) * 9)
    longer = extend(old, [], ["[E11]", "<num>", "[E11]"]).tokenizer
    size = len(old.vocabulary)
    assert longer.vocabulary.pieces == (*old.vocabulary.pieces, "[E11]", "<num>")
    assert longer.vocabulary.special_ids == old.vocabulary.special_ids
    text = "the [E11]house <num> [e11]"
    assert [number for number in longer.encode(text) if number >= size] == [size, size + 1]
    assert {text[span.begin : span.end] for span in longer.encode_spans(text) if span.id >= size} == {"[E11]", "<num>"}
    assert longer.encode("the house") == old.as_pipeline().encode("the house")
    longer.save(tmp_path / "run")
    assert load_tokenizer(tmp_path / "run").encode(text) == longer.encode(text)
    assert load_tokenizer(tmp_path / "run").vocabulary.pieces == longer.vocabulary.pieces


def test_words_follow_markers():
    longer = extend(WordPieceTokenizer(Vocabulary(PIECES)), ["covid"], ["[E11]"]).tokenizer
    last = extend(longer, ["riverhouse"]).tokenizer
    assert last.vocabulary.pieces == (*PIECES, "covid", "[E11]", "riverhouse")
    words = [last.vocabulary.pieces[number] for number in last.encode("Covids [E11] Riverhouse riverhouses")]
    assert words == ["covid", "##s", "[E11]", "riverhouse", "[UNK]"]


def test_an_added_token_that_the_normalizer_removes_is_refused():
    """The library finds such a token everywhere, until it has taken all memory (tokenizers 0.23)."""
    file = wordpiece_file(cased=True)
    file["normalizer"] = {"type": "Strip", "strip_left": True, "strip_right": True}
    number = len(file["model"]["vocab"])
    token = {"id": number, "content": "  ", "single_word": False, "lstrip": False, "rstrip": False, "special": False}
    kept = Tokenizer(file | {"added_tokens": [token | {"normalized": False}]})
    assert kept.vocabulary.pieces[number] == "  "
    with pytest.raises(UsageError, match="removes the added token '  ', which could be found everywhere"):
        Tokenizer(file | {"added_tokens": [token | {"normalized": True}]})
