"""What is odd about lines is found, and clean text isn't odd."""

import base64
import json
import random
import textwrap

import pytest
from conftest import stories

from bert_jax.records.line_kinds import oddities

CLEAN = [document.split("\n") for document in stories(40).strip().split("\n\n")]
PARAGRAPHS = [paragraph for document in CLEAN for paragraph in document]
WORDS = " ".join(PARAGRAPHS).split()


def mixed(share, *lines):
    """Clean paragraphs with these lines among them, as a share of all."""
    number = round(share * len(PARAGRAPHS) / (1 - share))
    return [*PARAGRAPHS, *(lines[at % len(lines)] for at in range(number))]


@pytest.mark.parametrize(
    "kind, lines",
    {
        "JSON": [json.dumps({"id": at, "text": line}) for at, line in enumerate(PARAGRAPHS)],
        "HTML tags": mixed(0.05, "<p class='x'>The owner", "sees it</a>"),
        "XML tags": mixed(0.05, "<tuv xml:lang='de'>", "</tuv>"),
        "HTML entities": mixed(0.05, "fish &amp; chips"),
        "wikitext": mixed(0.1, "a [[link|word]] of it", "== History =="),
        "LaTeX": mixed(0.1, "\\section{Owners}", "as \\citet{him} says"),
        "Markdown": mixed(0.1, "## Owners", "see [it](http://x.org)"),
        "headers of e-mail": mixed(0.2, "Subject: the owner", "From: him <him@x.org>", "X-Mailer: x"),
        "special tokens": mixed(0.02, "<|endoftext|>"),
        "encoded bytes": mixed(0.1, base64.b64encode(b"some bytes that mean nothing at all here").decode()),
        "code": mixed(0.5, "for (i = 0; i < n; i++) {", "sum += i;", "}"),
        "no letter": mixed(0.5, "12", "00:01:02,000 --> 00:01:04,000"),
        "control characters": mixed(0.05, "a\x07b c"),
        "wrongly decoded characters": mixed(
            0.05, "it was dÃ©jÃ\xa0 vu", "he said â€œyesâ€\x9d", "it\x92s here", "ä¸\xadæ–‡"
        ),
        "U+FFFD, lost characters": mixed(0.05, "B\ufffdren are here"),
        "columns": [f"{line}\t{at % 2}" for at, line in enumerate(PARAGRAPHS)],
        "beginnings": [f"[{at}] {line}" for at, line in enumerate(PARAGRAPHS)],
        "wrapped lines": textwrap.wrap(" ".join(WORDS), 72),
        "few letters": [line + " 1.5, 27.3 + 88 = ?" * (len(line) // 9) for line in PARAGRAPHS],
    }.items(),
)
def test_each_oddity_is_found_with_its_share_and_a_remedy(kind, lines):
    found = {odd.kind: odd for odd in oddities([lines])}
    assert kind in found and found[kind].remedy and "%" in found[kind].figure


def test_text_that_was_decoded_wrongly_is_told_from_control_characters_and_from_capitals_before_quotes():
    wrong = "Élève, wąż, größe, Привет, κόσμε, שלום, سلام, 中文, việt, “quoted” – it’s".split(", ")
    for encoding in ("latin-1", "cp1252"):
        lines = [word.encode().decode(encoding, "ignore") for word in wrong]
        found = {odd.kind for odd in oddities([[*PARAGRAPHS[:20], *lines]])}
        assert "wrongly decoded characters" in found and "control characters" not in found
    right = [
        "« LIBERTÉ »",
        "„DIE GRÖẞE“ – MÄ…",
        "fermé\xa0», dit-il",
        "à\xa0« lui\xa0»",
        "AMANHÃ…",
        "in Köln: 5\xa0°C",
        "Fuß“",
    ]
    assert "wrongly decoded characters" not in {odd.kind for odd in oddities([right * 5])}


@pytest.mark.parametrize(
    "lines",
    [
        [f'"{WORDS[at]}","{WORDS[at + 1]}, {WORDS[at + 2]}",long' for at in range(60)],
        [f"{word} {random.Random(at).choice(['O', 'B-PER'])}" for at, word in enumerate(WORDS[:90])],
        WORDS[:90],
    ],
    ids=["csv", "conll", "words"],
)
def test_columns_are_found_whatever_is_between_them(lines):
    assert [odd.kind for odd in oddities([lines[:30], lines[30:]])] == ["columns"]


def test_one_line_for_all_is_odd():
    assert [odd.kind for odd in oddities([[" ".join(PARAGRAPHS)]])] == ["long lines"]


@pytest.mark.parametrize(
    "documents",
    [
        CLEAN,
        [[f"- {line}" for line in document] for document in CLEAN],
        [["今日は朝から雪が降ったので、猫は家にいる。2019年に来た。", "そうです。"]] * 30,
        [["a < b, c > d; x & y", "{a}", "He said: [sic]", "C++ <vector> == fine"], *CLEAN],
        [["The 1st.", "{}"]],
        [[" ".join(WORDS[at : at + 22]) + '."'[: 1 + at % 2] for at in range(30)]],
    ],
    ids=["stories", "dialogue", "japanese", "signs", "short", "equally many words"],
)
def test_clean_text_is_not_odd(documents):
    assert not list(oddities(documents))


def test_a_long_name_before_a_colon_is_judged_at_once():
    """A pattern that tries all divisions of a word would take 2^30 steps."""
    lines = [f"Parlamentarischer Geschäftsführer: {line}" for line in PARAGRAPHS]
    assert "beginnings" in {odd.kind for odd in oddities([lines])}
