"""Rows are looked up in the text that a model was pretrained on."""

import gzip
import json
import random
import shutil

import pytest
from conftest import stories, story
from trained_tokenizers import trained

from bert_jax.config.data import VocabularyConfig
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import Phase
from bert_jax.instances.held_out import is_held_out
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.pretraining.dataset import check_preparation, prepare_data
from bert_jax.products.suite import contamination as module
from bert_jax.products.suite.contamination import contaminations
from bert_jax.products.suite.texts import row_texts
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.text.segmentation import split_sentences

VOCABULARIES = {
    "uncased": VocabularyConfig(size=120),
    "cased": VocabularyConfig(size=140, lowercase=False),
    "byte_bpe": VocabularyConfig(kind="byte_bpe", size=330, lowercase=False),
    "unigram": VocabularyConfig(kind="unigram", size=90),
}
SCRIPTS = {
    "chinese": ("wordpiece", 43, "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子"),
    "chinese in bytes": ("byte_bpe", 340, "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子"),
    "japanese": ("unigram", 110, "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほ日本語東京大学"),
    "thai": ("wordpiece", 110, "กขคงจฉชซญดตถทธนบปผพฟมยรลวสหอฮะาเแโ"),
}
"""The kind and size of a vocabulary, and letters, by script."""


def looked_up(run, sets):
    """What is known of sets of rows, each a text or several."""
    rows = {name: [(row,) if isinstance(row, str) else row for row in of_set] for name, of_set in sets.items()}
    return contaminations(run, rows)


def contamination(run, rows):
    """What is known of one set of rows."""
    return looked_up(run, {"": rows})[""]


RARE = "the small dog finds Щука near the old bridge and follows the quiet painter home again"


@pytest.fixture(scope="module")
def prepare(tiny_config, tmp_path_factory):
    """Prepares a text; returns the run. All documents are trained on."""

    def prepared(text: str, vocabulary: VocabularyConfig, init: str | None = None, **data) -> RunDirectory:
        folder = tmp_path_factory.mktemp("prepared")
        (folder / "text.txt").write_text(text, encoding="utf-8")
        data = {"source": f"text:{folder / 'text.txt'}", "held_out": 0.0} | data
        settings = {"vocabulary": vocabulary, "objective": ObjectiveConfig(pair="none"), "init": init}
        config = tiny_config.replace(**settings, data=tiny_config.data.replace(**data))
        run = RunDirectory(folder / "run")
        run.open(config)
        prepare_data(config, run, check_preparation(config.replace(init=None), run, OpenedModels()))
        return run

    return prepared


@pytest.fixture(scope="module", params=VOCABULARIES)
def run(request, prepare) -> RunDirectory:
    return prepare(stories(40), VOCABULARIES[request.param])


def words(seed: int, begin: int, count: int) -> str:
    """Words of a story, of which sentences have ten."""
    return " ".join(" ".join(story(seed)).split()[begin : begin + count])


def test_rows_of_the_text_are_found_and_others_are_not(run, monkeypatch):
    monkeypatch.setattr(module, "_TOKENS_AT_ONCE", 3_000)
    rows = [words(seed, begin, 13) for seed in range(40) for begin in range(0, 20, 3)]
    rows = [row for row in rows if len(row.split()) == 13]
    found = contamination(run.path, [*rows, *(row.replace(".", "").lower() for row in rows)])
    assert found[:3] == (2 * len(rows), 2 * len(rows), 0) and found.share == 1.0 and found.unknown is None
    assert found.examples == rows[:2] and found.tokens > 5_000
    others = contamination(run.path, [" ".join(story(seed)) for seed in range(1_000, 1_400)])
    assert others[:3] == (400, 0, 0) and others.share == 0.0 and others.examples == []


def test_thirteen_words_are_found_and_twelve_are_a_common_phrase(run):
    rows = [f"Yesterday my aunt wrote: {words(3, 5, count)}, and we laughed." for count in (12, 13)]
    whole = [words(3, 5, count) for count in (9, 10, 12)] + [words(3, 5, 11) + " aunt", ""]
    found = looked_up(run.path, {"12": rows[:1], "13": rows[1:], "whole": whole, "none": []})
    assert [of_set[:3] for of_set in found.values()] == [(1, 0, 0), (1, 1, 0), (5, 2, 2), (0, 0, 0)]
    assert found["whole"].share == 2 / 3 and found["none"].share is None


def test_a_row_is_found_by_any_of_its_texts_alone(run):
    other = "My aunt wrote a letter about the weather in the mountains and laughed."
    rows = [(other, words(3, 5, 13)), (words(3, 5, 5), words(3, 10, 5)), (other, words(3, 5, 5))]
    assert contamination(run.path, rows)[:3] == (3, 1, 1)


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_without_spaces_have_runs_of_thirty_characters(prepare, script):
    kind, size, letters = SCRIPTS[script]
    rng = random.Random(5)
    documents = [["".join(rng.choices(letters[:-1], k=50)) + "。" for _ in range(4)] for _ in range(30)]
    text = "\n\n".join("\n".join(document) for document in [*documents, [letters[-1]]]) + "\n"
    run = prepare(text, VocabularyConfig(kind=kind, size=size), layout="sentences")
    rest = letters[-1] * 40
    rows = {
        "30": [rest + line[7:37] + rest for document in documents for line in document],
        "29": [rest + line[7:36] + rest for document in documents for line in document],
        "whole": [line[3:28] for document in documents for line in document],
        "short": [line[:23] for document in documents for line in document],
    }
    found = looked_up(run.path, rows)
    assert [found[name].rows_found for name in rows] == [120, 0, 120, 0]
    assert [found[name].too_short for name in rows] == [0, 0, 0, 120]


def test_what_has_an_unknown_piece_is_not_found(prepare, tmp_path):
    trained("wordpiece").vocabulary.write(tmp_path / "vocab.txt")
    run = prepare(f"{RARE}\n\n{stories(3)}", VocabularyConfig(file=str(tmp_path / "vocab.txt")))
    after = " ".join(RARE.split()[5:])
    assert contamination(run.path, [RARE, RARE.replace("Щука", "Рыба")])[:3] == (2, 0, 0)
    assert contamination(run.path, [after]).rows_found == 1
    known = RARE.replace("Щука", "foxes")
    assert contamination(prepare(f"{known}\n\n{stories(3)}", VOCABULARIES["uncased"]).path, [known]).rows_found == 1


@pytest.mark.long
def test_held_out_documents_are_not_the_models_text(tiny_config, tiny_run, packed_run):
    documents = [story(seed) for seed in range(120)]
    for run, least in ((tiny_run, 0.4), (packed_run, 0.7)):  # pairs are cut to fit
        shares = []
        for held_out in (True, False):
            sentences = [
                sentence
                for document in documents
                if is_held_out(document, tiny_config.data.held_out) == held_out
                for paragraph in document
                for sentence in split_sentences(paragraph, "en")
            ]
            shares.append(contamination(run.path, sentences).share)
        assert shares[0] == 0 and shares[1] > least


def test_a_checkpoint_has_its_runs_text(tiny_run):
    rows = [" ".join(story(seed)) for seed in range(20)]
    newest = sorted(tiny_run.checkpoints.iterdir())[-1]
    found = contamination(newest, rows)
    assert found == contamination(tiny_run.path, rows) and found.rows_found > 10


def finetuned(folder, pretraining, **settings):
    """A run at `folder` that was fine-tuned from `init`, without parameters."""
    task = TaskConfig(name="t", kind="class", labels=("a", "b"))
    config = FinetuneConfig(task=task, **settings)
    phase = Phase(steps=1, length=32, batch_size=8)
    run = RunDirectory(folder)
    folder.mkdir()
    write_config(run.config_file, config.run_config(pretraining.model, task, "0", phase))
    return run.path


def test_a_model_has_seen_the_text_of_those_that_it_began_with(prepare, tiny_config, tmp_path):
    first = prepare(stories(10), VOCABULARIES["uncased"])
    second = prepare(stories(10, first=500), VOCABULARIES["cased"], init=str(first.path))
    rows = {name: [" ".join(story(seed)) for seed in range(at, at + 10)] for name, at in {"old": 0, "new": 500}.items()}
    run = finetuned(tmp_path / "tuned", tiny_config, init=str(second.path))
    found = looked_up(run, rows)
    assert [found[name].share for name in rows] == [1, 1] and found["old"].unknown is None
    of_first = contamination(first.path, []).tokens
    assert found["old"].tokens == of_first + PreparedData.open(second.data(32)).train.instance_tokens
    shutil.rmtree(first.path / "data")
    found = looked_up(run, rows)
    assert [found[name].share for name in rows] == [0, 1]
    assert found["old"].unknown == found["new"].unknown and "has no prepared data of length 32" in found["old"].unknown


def test_runs_that_name_each_other_are_read_once(tiny_config, tmp_path):
    one = finetuned(tmp_path / "one", tiny_config, init=str(tmp_path / "two"))
    finetuned(tmp_path / "two", tiny_config, init=str(one))
    assert contamination(one, ["a row"]) == (1, 0, 0, 0, [], None)


def test_why_nothing_can_be_told(tiny_config, tiny_run, tiny_copy, tmp_path):
    rows = [" ".join(story(seed)) for seed in range(20)]
    shutil.rmtree(tiny_copy.path / "data")
    hub = tmp_path / "hub"
    hub.mkdir()
    (hub / "config.json").write_text('{"model_type": "bert"}')
    imported = tmp_path / "imported"
    imported.mkdir()
    write_config(imported / "config.json", tiny_config, imported_from="bert-base-uncased")
    tuned = {
        "from_hub": {"init": "bert-base-uncased"},
        "of_imported": {"init": str(imported)},
        "random": {"init": str(tiny_run.path), "from_random": True},
    }
    paths = {name: finetuned(tmp_path / name, tiny_config, **settings) for name, settings in tuned.items()}
    for path, reason in {
        tiny_copy.path: "no prepared data of length 32",
        hub: "a model of another program, whose text isn't here",
        imported: "a model of another program, whose text isn't here",
        paths["from_hub"]: f"{paths['from_hub']} began with bert-base-uncased, which isn't on this machine",
        paths["of_imported"]: "imported is a model of another program",
        paths["random"]: "began with random parameters and saw no text but its rows",
        tmp_path / "nothing": "there is nothing at",
    }.items():
        found = contamination(path, rows)
        assert found[:5] == (20, 0, 0, 0, []) and found.share is None and reason in found.unknown, path


def test_rows_of_a_task_are_read_as_finetune_reads_them(tmp_path):
    pairs = tmp_path / "pairs.tsv.gz"
    with gzip.open(pairs, "wt") as file:
        file.write("id\tone\ttwo\tlabel\n1\tA first text.\tA second.\tx\n")
    task = TaskConfig(name="t", kind="class", texts=("one", "{two} {id}"))
    assert row_texts(task, str(pairs)) == [("A first text.", "A second. 1")]
    tags = tmp_path / "tags.jsonl"
    tags.write_text(json.dumps({"words": ["Two", "words"], "tags": ["O", "O"]}))
    task = TaskConfig(name="t", kind="tags", texts=("words",), label="tags")
    assert row_texts(task, str(tags)) == [("Two words",)]
    choices = tmp_path / "choices.jsonl"
    choices.write_text(json.dumps({"premise": "Why?", "choice1": "So.", "choice2": "Not so.", "label": 0}))
    task = TaskConfig(name="t", kind="choice", texts=("premise",), choices=("choice1", "choice2"))
    assert row_texts(task, str(choices)) == [("Why?", "So.", "Not so.")]
