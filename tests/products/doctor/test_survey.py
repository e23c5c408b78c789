from collections import Counter

import pytest

from bert_jax.products.doctor.survey import BOILERPLATE, DUPLICATES, LONG_LINES, UNDECODED, Survey

ENGLISH = "Mathematics is the study of numbers, shapes and the ways in which they change over time."
GERMAN = "Die Mathematik ist eine Wissenschaft, welche aus der Untersuchung von Figuren und Zahlen entstand."


def faults(*documents, repairs=()):
    survey = Survey()
    for document in documents:
        survey.add(document)
    return {fault.fault: fault for fault in survey.faults(Counter(repairs))}


@pytest.mark.parametrize(
    "fault, text",
    [
        ("control characters", "a\x07b"),
        ("U+FFFD, lost characters", "B\ufffdren"),
        ("HTML tags", "see <a href='x'>this</a>"),
        ("HTML entities", "fish &amp; chips"),
        ("wikitext", "a [[link]] of it"),
        ("WikiExtractor's leftovers", "where formula_12 holds"),
        (LONG_LINES, "word " * 3000),
    ],
)
def test_each_fault_is_found_with_its_documents_and_an_example(fault, text):
    found = faults([ENGLISH, text], [ENGLISH], ["x < y and a > b, 5 & 6; f[0][1] == 2"], [ENGLISH, "C++ <vector>"])
    assert list(found) == [fault]
    assert (found[fault].documents, found[fault].share) == (1, 0.25)
    assert found[fault].example.isprintable() and len(found[fault].example) <= 100


def test_copies_of_documents_and_lines_of_many_documents_are_found():
    line = "This page was last edited by nobody in particular, so."
    documents = [[f"{ENGLISH} {number}", line] for number in range(30)]
    found = faults(*documents, documents[3], documents[3], [ENGLISH])
    assert found[DUPLICATES].count == 2
    assert (found[BOILERPLATE].count, found[BOILERPLATE].documents) == (32, None)
    assert BOILERPLATE not in faults(*documents[:9])
    assert BOILERPLATE not in faults(*documents, *([f"{number}"] for number in range(3000)))  # one in a hundred


def test_what_the_reader_mended_is_told_once():
    found = faults(["B\ufffdren"], repairs={UNDECODED: 7})
    assert list(found) == [UNDECODED] and found[UNDECODED].count == 7 and found[UNDECODED].share is None


@pytest.mark.long
def test_planted_languages_have_their_share_of_the_characters(monkeypatch):
    monkeypatch.setattr("bert_jax.products.doctor.survey._BLOCKS", 1500)  # of 2,000: a sample
    survey = Survey()
    for number in range(1000):
        survey.add([(GERMAN if number < 50 else ENGLISH) * 14])
    languages, scripts = survey.languages()
    shares = {share.name: share.share for share in languages}
    planted = 50 * len(GERMAN) / (50 * len(GERMAN) + 950 * len(ENGLISH))
    assert set(shares) == {"en", "de"} and shares["de"] == pytest.approx(planted, abs=0.01)
    assert [(share.name, share.share) for share in scripts] == [("Latin", 1.0)]


def test_a_short_block_counts_by_its_characters():
    survey = Survey()
    survey.add([GERMAN])
    survey.add([ENGLISH * 6])
    languages, _ = survey.languages()
    german = len(GERMAN) / (len(GERMAN) + 6 * len(ENGLISH))
    assert {share.name: share.share for share in languages} == pytest.approx({"de": german, "en": 1 - german})
