"""A diagnosis of a good text, of a spoiled one, and what it says to change."""

import pytest
from conftest import stories

from bert_jax.products.doctor.diagnosis import _language, _tokens_a_parameter, diagnose, most_epochs
from bert_jax.products.doctor.remedies import changes
from bert_jax.products.doctor.survey import DUPLICATES, Fault
from bert_jax.run.config_files import find_config
from bert_jax.run.opened_models import OpenedModels

GERMAN = "Die Mathematik ist eine Wissenschaft, welche aus der Untersuchung von Figuren und Zahlen entstand. " * 7


def diagnosed(config, path, text: bytes):
    path.write_bytes(text)
    config = config.of_source(f"text:{path}", "en")
    found = diagnose(config, OpenedModels())
    return found, [f"{change.reason}: {change.change}" for change in changes(found, config)]


@pytest.fixture(scope="module")
def config(tiny_config):
    phase = tiny_config.phases[0].replace(steps=1000)
    return tiny_config.change(data={"short_sequence_probability": 0.0}).replace(phases=(phase,))


@pytest.fixture(scope="module")
def good(config, tmp_path_factory):
    return diagnosed(config, tmp_path_factory.mktemp("good") / "a.txt", stories(300).encode())


@pytest.mark.long
def test_several_sources_share_a_vocabulary_and_each_is_judged(config, good, tmp_path):
    (tmp_path / "en.txt").write_text(stories(300))
    (tmp_path / "de.txt").write_text("\n\n".join(f"{GERMAN}\nNummer {number}." for number in range(60)))
    sources = tuple(f"text:{tmp_path / name}.txt" for name in ("en", "de"))
    mixed = config.set({"data.source": sources, "data.language": ("en", "fr"), "data.weights": (1.0, 3.0)})
    phase = mixed.phases[0].replace(steps=400)
    found = diagnose(mixed.replace(phases=(phase,)), OpenedModels())
    of_english, of_german = found.sources
    alone, _ = good
    assert of_english.text.documents == alone.text.documents and of_english.languages[0].name == "en"
    assert {source.pieces[0].pieces for source in found.sources} == {150} and found.vocabulary_size is None
    assert [len(source.pieces) for source in found.sources] == [1, 1]
    rows = [next(cut.rows for cut in each.cuts if cut.length == 32 and not cut.packed) for each in found.sources]
    assert [each.share for each in found.shares] == [0.25, 0.75]
    expected = [share * 400 * 8 / count for share, count in zip((0.25, 0.75), rows, strict=True)]
    assert [each.epochs for each in found.shares] == pytest.approx(expected)
    assert found.training.epochs == pytest.approx(400 * 8 / sum(rows))
    assert found.preparation.chunks == sum(source.preparation.chunks for source in found.sources)
    advice = [f"{change.reason}: {change.change}" for change in changes(found, mixed)]
    assert any(line.startswith(f"{sources[1]}: ") and line.endswith("--data.language de") for line in advice), advice


@pytest.mark.long
def test_a_source_of_a_mixture_that_is_seen_too_often_is_named(config, tmp_path):
    (tmp_path / "large.txt").write_text(stories(400))
    (tmp_path / "small.txt").write_text(stories(8))
    sources = tuple(f"text:{tmp_path / name}.txt" for name in ("large", "small"))
    phase = config.phases[0].replace(steps=2500)
    mixed = config.set({"data.source": sources, "data.smoothing": 0.0}).replace(phases=(phase,))
    found = diagnose(mixed, OpenedModels())
    assert found.shares[1].epochs > most_epochs(mixed) == 100 > found.training.epochs, found.shares
    assert most_epochs(find_config("gpt_ltr").config) == 40  # no fresh masks in each epoch
    (line,) = [change for change in changes(found, mixed) if "the training sees" in change.reason]
    assert sources[1] in line.reason and sources[0] not in line.reason
    assert line.change.startswith("a higher --data.smoothing, up to 1")


def test_the_figures_of_a_text_that_is_read_whole_are_exact(good, config):
    found, _ = good
    text = stories(300)
    assert (found.text.documents, found.text.sample, found.text.sample_share) == (300, "the whole", 1.0)
    assert found.text.text_bytes == found.text.sample_bytes == len(text) + 1
    assert found.text.sentences == pytest.approx(0.9 * text.count(". The") + 0.9 * 300 * 4, rel=0.1)
    assert found.languages[0].name == "en" and found.languages[0].share > 0.99 and not found.faults
    rows = next(cut.rows for cut in found.cuts if cut.length == 32 and not cut.packed)
    assert found.training.epochs == pytest.approx(1000 * 8 / rows)
    assert found.preparation.chunks == round(len(text) / 20_000)
    by_machine = {each.work: each.hours for each in found.hours}
    assert by_machine["one TPU v5e"] / by_machine["one TPU v5p"] == pytest.approx(459 / 197)


def test_only_the_size_of_the_training_is_to_be_changed_of_a_good_text(good):
    _, advice = good
    kinds = [line.partition(":")[0] for line in advice]
    assert [each for each in kinds if not each.startswith(("the text suffices", "the text is seen"))] == []


def test_what_was_planted_is_found_with_flags(config, tmp_path):
    documents = [document.encode() for document in stories(300).strip().split("\n\n")]
    line = b"\nThis page was last edited by nobody in particular, and its text is free."
    documents = [document + line for document in documents]
    documents += [GERMAN.encode()] * 30 + ["Bären äßen Öl.".encode("latin-1"), b"a\x07b", b"<p>Hello</p>" * 3]
    found, advice = diagnosed(config, tmp_path / "a.txt", b"\n\n".join(documents))
    shown = "\n".join(advice)
    for expected in (
        "German: to drop it, --data.language-filter; to keep it, a source of its own for each language",
        "the sample has 1 line not in UTF-8: convert them, for example by iconv -f WINDOWS-1252",
        "8.71% of the documents are copies, like",
        'control characters in 0.3% of the documents, like "a\\x07b": delete them',
        "HTML tags in 0.3% of the documents",
        'have, like "This page was last edited by nobody in particul...": --data.drop-boilerplate',
    ):
        assert expected in shown, shown
    dropped = {"deduplicate": "exact", "drop_boilerplate": True, "language_filter": True}
    rest = [change.change for change in changes(found, config.change(data=dropped))]
    assert not [line for line in rest if "--data.d" in line or "--data.l" in line]


def test_no_language_is_advised_where_the_declared_or_the_found_one_is_not_known(good, config, tmp_path):
    yiddish = "די מענטש גייט מיט אַ קינד אויפן גאַס, און דער טאַטע זעט זיי ביידע. " * 7
    text = "\n\n".join(f"{yiddish} {number}" for number in range(40)).encode()
    _, advice = diagnosed(config.change(vocabulary={"size": 60}), tmp_path / "a.txt", text)
    assert advice[0].startswith("100.0% of the text is in no language that can be identified, and English can: ")
    found, _ = good
    found = found.model_copy(update={"text": found.text.model_copy(update={"language": "yi"})})
    assert not [change for change in changes(found, config) if "--data.language" in change.change]


def test_a_declared_language_that_is_taken_for_another_one_is_kept(good):
    """Ancient Greek (grc) is identified as modern Greek, and its models are to name it."""
    found, _ = good
    greek = found.model_copy(update={"text": found.text.model_copy(update={"language": "grc"})})
    assert _language(greek) == "grc" and _language(found) == "en"


def test_a_text_in_another_language_than_declared_needs_its_flag_and_another_vocabulary(config, tiny_run, tmp_path):
    given = config.change(vocabulary={"file": str(tiny_run.tokenizer_directory / "vocab.txt")})
    text = "\n\n".join(f"{GERMAN} {number}" for number in range(40)).encode()
    _, advice = diagnosed(given, tmp_path / "a.txt", text)
    assert advice[0] == "100.0% of the text is in German, not in English: --data.language de"
    (line,) = [line for line in advice if "given vocabulary" in line]
    assert line.endswith("--vocabulary.size 128 without --vocabulary.file")


def test_copies_in_a_part_of_the_text_are_told_as_the_least_there_are(good, config):
    found, _ = good
    copies = Fault(fault=DUPLICATES, count=2, documents=2, share=0.0005, example="x")
    part = found.text.model_copy(update={"sample_share": 0.3})
    seen = found.model_copy(update={"whole": False, "text": part, "faults": [copies]})
    assert any("at least 0.05% of the documents are copies" in change.reason for change in changes(seen, config))
    whole = found.model_copy(update={"faults": [copies]})
    assert not any("copies" in change.reason for change in changes(whole, config))


@pytest.mark.parametrize(
    "parameters, fed, expected",
    [
        (2_000_000, (10_000, 1_000_000), "--model.num-layers, --model.hidden-size"),
        (110_000_000, (300_000, 30_000_000), "bert-jax pretrain small"),
        (30_000_001, (300_000, 30_000_000), "bert-jax pretrain small"),
        (30_000_000, (300_000, 30_000_000), None),
    ],
)
def test_a_model_beyond_what_the_text_feeds_is_to_be_made_smaller(good, config, parameters, fed, expected):
    found, _ = good
    training = found.training.model_copy(update={"parameters": parameters, "text_parameters": fed})
    told = changes(found.model_copy(update={"training": training}), config)
    told = [change.change for change in told if change.reason.startswith("the text suffices for at most")]
    assert len(told) == (expected is not None) and all(change.endswith(expected) for change in told), told


def test_the_parameters_that_a_text_feeds_say_what_they_rest_on(good, config):
    found, _ = good
    least, most = found.training.text_parameters
    assert most == pytest.approx(100 * least, rel=0.01) and most == pytest.approx(
        15.2 * found.text.tokens / 20, rel=0.01
    )
    assert found.training.text_parameters_basis == (
        "20 tokens for each in causal models (Hoffmann et al. 2022), up to 100 times as many in encoders (Dervishi et "
        "al. 2025: 10 to 100 times)"
    )
    causal = config.change(model={"causal": True}, objective={"predict": "next", "pair": "none"})
    assert _tokens_a_parameter(causal) == ((20, 20), "20 tokens for each in causal models (Hoffmann et al. 2022)")


def test_packing_is_advised_only_where_it_saves_padding(good, config):
    found, _ = good
    for packed, is_advised in ((0.19, False), (0.05, True)):
        cuts = [
            cut.model_copy(update={"padding": packed if cut.packed else 0.2, "random_pairs": 0.9}) for cut in found.cuts
        ]
        advice = [change.change for change in changes(found.model_copy(update={"cuts": cuts}), config)]
        assert ("--data.packed" in advice) == is_advised and "--objective.pair none" in advice


def test_padding_and_pairs_are_judged_by_the_config(config, tmp_path):
    text = "\n\n".join(f"The cat sees dog {number}.\nIt was seen." for number in range(400)).encode()
    _, advice = diagnosed(config, tmp_path / "a.txt", text)
    assert any(line.endswith("packed: --data.packed") for line in advice)


@pytest.mark.parametrize("strip_accents", [None, False])
def test_letters_that_the_vocabulary_drops_are_told_and_words_are_counted_between_blanks(
    config, tmp_path, strip_accents, capsys
):
    text = stories(60).replace("the", "ġie")
    config = config.change(vocabulary={"strip_accents": strip_accents})
    found, advice = diagnosed(config, tmp_path / "a.txt", text.encode())
    lost = [line for line in advice if "of the words lose letters or accents" in line]
    assert found.text.words == len(text.split())
    if strip_accents is None:
        assert lost and "ġie → gie" in lost[0] and lost[0].endswith(": --vocabulary.strip-accents False")
    else:
        assert not lost and found.merged is None
