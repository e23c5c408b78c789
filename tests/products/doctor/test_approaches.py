"""The approaches for a text: their order by the thresholds, their reasons, figures and commands."""

import math
import shlex
import string

import pytest
from conftest import stories

from bert_jax.config.fitted import ScratchConfig
from bert_jax.products.doctor import approaches as rule
from bert_jax.products.doctor.approaches import ApproachFinder
from bert_jax.run.config_files import load_config
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.trained_model import Provenance
from bert_jax.text.cleaning import ORIGINAL
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer
from bert_jax.training.estimate import Estimate

SECOND = Estimate(hours=1e-12, basis="a trial")
LARGE = 60_001
"""Minutes that are more than 1e15 FLOPs."""
LETTERS = string.ascii_lowercase + string.digits
COPTIC = ["ⲁⲩⲱ ⲡⲉϫⲁϥ ⲛⲁϥ ϫⲉ ⲁⲛⲟⲕ ⲡⲉ ⲡⲛⲟⲩⲧⲉ ⲙⲡⲉⲕⲉⲓⲱⲧ"] * 40


@pytest.fixture(scope="module")
def documents():
    return [document.split("\n") for document in stories(60).strip().split("\n\n")]


@pytest.fixture(scope="module")
def model(tiny_run):
    return OpenedModels().model(tiny_run.path)


def with_pieces(model, *pieces):
    """`model` with a WordPiece of the lower-case letters, beginning and inside words, and `pieces`."""
    vocabulary = Vocabulary(
        [*SPECIAL_PIECES, *LETTERS, *(f"##{letter}" for letter in LETTERS), *string.punctuation, *pieces]
    )
    return model._replace(tokenizer=WordPieceTokenizer(vocabulary, ORIGINAL))


def found(config, documents, models, words=1_000_000, language="en", tags=None, minutes=LARGE):
    return ApproachFinder(documents, words, language, config).approaches(models, tags, SECOND, minutes)


def names(approaches):
    """The approaches in order, without their numbers of pieces."""
    shown = {"with its": "own", "with a vocabulary": "of text", "as it is": "as it is"}
    texts = [each.description for each in approaches]
    kinds = [next((kind for text, kind in shown.items() if text in each), "") for each in texts]
    return ["scratch" if text.startswith("from") else kind for text, kind in zip(texts, kinds, strict=True)]


def test_a_model_of_the_language_is_adapted_with_its_vocabulary(tiny_config, documents, model):
    approaches = found(tiny_config, documents, {"runs/mine": model})
    assert names(approaches) == ["own", "of text", "as it is", "scratch"]
    assert [each.rank for each in approaches] == [1, 2, 3, 4]
    assert "it knows the language (" in approaches[0].knowledge
    assert "English is among its languages, by --data.language of its run" in approaches[0].knowledge
    assert "1,000,000 words of text" in approaches[3].reason


def test_the_words_of_text_choose_the_size_of_a_vocabulary(tiny_config, documents, monkeypatch):
    sizes, trained = [], rule.trained_tokenizer

    def recorded(documents, config, size):
        sizes.append(size)
        return trained(documents, config, 100)

    monkeypatch.setattr(rule, "trained_tokenizer", recorded)
    for words in (100, 409_599, 409_600, 10**9):
        (approach,) = found(tiny_config, documents, {}, words)
        assert "--vocabulary.size 100 " in approach.command  # what was trained
    assert sizes == [2048, 2048, 4096, 32768]


@pytest.mark.parametrize(
    "threshold, value, expected",
    [
        ("MOST_TIMES_PIECES", 0.5, ["of text", "own", "as it is", "scratch"]),
        ("FEWEST_SCRIPT_PIECES", 10**6, ["scratch", "of text", "own"]),
        ("MOST_UNKNOWN_CHARACTERS", -1.0, ["of text", "scratch", "own"]),
        (
            "ADAPTED_UP_TO",
            {"language": 999_999, "script": math.inf, "neither": math.inf},
            ["scratch", "own", "of text", "as it is"],
        ),
    ],
)
def test_each_threshold_orders_the_approaches(threshold, value, expected, tiny_config, documents, model, monkeypatch):
    monkeypatch.setattr(rule, threshold, value)
    approaches = found(tiny_config, documents, {"m": model})
    assert names(approaches) == expected
    assert ("not advised" in next(each for each in approaches if "with its" in each.description).reason) == (
        threshold in ("FEWEST_SCRIPT_PIECES", "MOST_UNKNOWN_CHARACTERS")
    )


def test_a_model_that_splits_words_into_letters_gets_a_vocabulary_of_the_text(tiny_config, documents, model):
    letters = with_pieces(model, *map(chr, range(0x250, 0x2B0)))
    approaches = found(tiny_config, documents, {"good": model, "letters": letters})
    assert [each.description.split()[1] for each in approaches] == ["good"] * 3 + ["letters"] * 3 + ["scratch"]
    assert names(approaches) == ["own", "of text", "as it is", "of text", "own", "as it is", "scratch"]


def test_a_text_in_a_script_that_the_model_lacks_is_trained_from_scratch(tiny_config, model):
    for minutes in (None, LARGE):
        approaches = found(tiny_config, [COPTIC], {"m": model}, 50_000, "cop", minutes=minutes)
        assert names(approaches) == ["scratch", "of text", "own"]
    of_text, own = approaches[1:]
    assert (
        "it knows neither language nor script (0 of its 150 pieces in Coptic; Coptic is not among" in of_text.knowledge
    )
    assert "100.0% of the characters unknown" in own.knowledge


def test_letters_that_a_vocabulary_drops_are_kept_by_one_of_the_text(tiny_config, documents, model):
    maltese = [[line.replace("the", "thé") for line in document] for document in documents]
    approaches = found(tiny_config, maltese, {"m": model}, language="mt")
    assert names(approaches) == ["of text", "own", "as it is", "scratch"]
    assert "thé → the" in approaches[1].knowledge


@pytest.mark.parametrize("settings", [{}, {"kind": "unigram"}])
def test_the_vocabulary_of_the_text_is_cased_as_in_the_printed_commands_whatever_the_config(
    settings, tiny_config, documents, model
):
    accented = [[line.replace("the", "Thé") for line in document] for document in documents]
    of_scratch = tiny_config.replace(vocabulary=load_config("scratch_small", ScratchConfig).vocabulary)
    expected = [(each.description, each.reason, each.command) for each in found(of_scratch, accented, {"m": model})]
    approaches = found(tiny_config.change(vocabulary=settings), accented, {"m": model})
    assert [(each.description, each.reason, each.command) for each in approaches] == expected


@pytest.mark.parametrize(
    "readme, expected",
    [
        ("---\nlanguage: en\nlicense: mit\n---\n", ["en"]),
        ("---\ntags:\n- mteb\nlanguage:\n- mt\n  - 'no'\n- multilingual\nlicense: mit\n---\n", ["mt", "no"]),
        ("---\nlanguage: [eng, zh-Hant]\n---\nlanguage: de\n", ["en", "zh-Hant"]),
        ("---\nlicense: mit\n---\nlanguage: de\n", []),
        ("# A model\nlanguage: de\n", []),
        (None, []),
    ],
)
def test_languages_are_those_that_the_readme_names(readme, expected, tmp_path, model):
    if readme is not None:
        (tmp_path / "README.md").write_text(readme)
    codes, _ = rule._stated_languages(model._replace(path=tmp_path, provenance=Provenance()))
    assert codes == expected


def test_languages_that_nobody_names_are_estimated_and_the_reason_says_so(
    tiny_config, documents, model, tmp_path, monkeypatch
):
    unnamed = model._replace(path=tmp_path, provenance=Provenance())
    for share, verdict, language in (
        (1.1, "English is not among", "en"),
        (0.0, "English is among", "en"),
        (0.0, "", None),
    ):
        monkeypatch.setattr(rule, "FEWEST_WHOLE", share)
        (approach, *_) = found(tiny_config, documents, {"m": unnamed}, language=language)
        assert (verdict or "the text's language is among") in approach.knowledge
        assert (
            "its languages, by an estimate: " in approach.knowledge
            and f"known from {share:.0%} on" in approach.knowledge
        )
    (tmp_path / "README.md").write_text("---\nlanguage: de\n---\n")
    (approach, *_) = found(tiny_config, documents, {"m": unnamed})
    assert "it knows the script alone (" in approach.knowledge
    assert "English is not among its languages, by its README.md" in approach.knowledge


def test_a_treebank_adds_an_approach(tiny_config, documents):
    with_tags, without = found(tiny_config, documents, {}, tags="a b.conllu")
    words = shlex.split(with_tags.command)
    assert words[words.index("--objective.tags") + 1] == "a b.conllu"
    assert "--objective.tags" not in without.command and "tags" in with_tags.description


def test_the_commands_have_the_languages_and_the_shares_of_the_sources(tiny_config, documents):
    config = tiny_config.change(data={"source": ("text:a", "text:b"), "language": ("en", "de"), "weights": (1, 3)})
    (scratch,) = found(config, documents, {}, language=None)
    words = "--data.source text:a text:b --data.language en de --data.weights 1 3"
    assert words in scratch.command


def test_commands_and_figures_are_of_the_same_text_and_steps(tiny_config, documents, model):
    config = tiny_config.of_source("text:my texts/*.txt", "en")
    own, of_text, as_it_is, scratch = found(config, documents, {"runs/mine": model}, minutes=LARGE)
    words = shlex.split(own.command)
    assert words[:5] == ["bert-jax", "pretrain", "adapt", "--init", "runs/mine"] and "--vocabulary.size" not in words
    assert words[-6:] == ["--data.source", "text:my texts/*.txt", "--data.language", "en", "--minutes", "60001"]
    assert as_it_is.estimate is None
    assert shlex.split(scratch.command)[2:4] == ["scratch_small", "--vocabulary.size"]
    for estimate in (own.estimate, of_text.estimate, scratch.estimate):
        assert estimate.hours == pytest.approx(1e-12 * estimate.flops) and estimate.memory > 1e5
        assert estimate.work.startswith("10,000 steps of 32 rows of 128 tokens")
    larger = model._replace(config=model.config.replace(vocabulary_size=250_000))
    assert found(config, documents, {"m": larger})[0].estimate.flops > 2 * own.estimate.flops
    assert found(config, documents, {"m": larger})[1].estimate == of_text.estimate


def test_a_small_budget_is_for_a_model_as_it_is_where_its_vocabulary_fits_the_text(
    tiny_config, documents, model, capsys
):
    for minutes in (None, 60_000):
        approaches = found(tiny_config, documents, {"m": model}, tags="a b.conllu", minutes=minutes)
        assert names(approaches) == ["as it is", "own", "of text", "scratch", "scratch"]
        assert "best for budgets up to about 60,000 minutes of pretraining on this machine" in approaches[0].reason
        rule.print_approaches(approaches)
        assert rule.MEASURED in " ".join(capsys.readouterr().out.split()) and "Uyghur" in rule.MEASURED
        assert all(("--minutes 60000" in each.command) == (minutes is not None) for each in approaches[1:])
    assert shlex.split(approaches[0].command) == [
        *"bert-jax finetune tags --init m --workdir RUN --task.train".split(),
        *("a b.conllu", "--task.dev", "10%", "--task.label", "upos", "--optimizer.peak-learning-rate", "3e-4"),
    ]
    later = next(each for each in found(tiny_config, documents, {"m": model}) if "as it is" in each.description)
    assert "larger ones were not measured" in later.reason and "--task.train ROWS" in later.command


def test_a_small_budget_bears_more_pieces_a_word_than_a_large_one(tiny_config, documents, model, monkeypatch):
    best = {}
    for most in (0.5, 10.0):
        monkeypatch.setattr(rule, "MOST_TIMES_UNADAPTED", most)
        best[most] = [names(found(tiny_config, documents, {"m": model}, minutes=each))[0] for each in (None, 10**9)]
    assert best == {0.5: ["of text", "own"], 10.0: ["as it is", "own"]}


def test_a_small_budget_is_for_scratch_where_a_model_of_the_script_splits_or_drops_letters(
    tiny_config, documents, model, tmp_path
):
    maltese = [[line.replace("the", "thé") for line in document] for document in documents]
    named = model._replace(path=tmp_path, provenance=Provenance())
    (tmp_path / "README.md").write_text("---\nlanguage: en\n---\n")
    of_maltese = found(tiny_config, maltese, {"m": named}, language="mt", minutes=None)
    assert names(of_maltese) == ["scratch", "of text", "as it is", "own"]
    assert names(found(tiny_config, maltese, {"m": named}, language="en", minutes=None))[-1] == "scratch"
