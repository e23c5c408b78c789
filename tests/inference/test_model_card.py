"""What an export says of itself."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from vector_runs import write_vectors_run

from bert_jax import configs
from bert_jax.cli.main import run
from bert_jax.config.model import ModelConfig
from bert_jax.inference import model_card
from bert_jax.inference.bert import Bert
from bert_jax.run.results import Results
from bert_jax.run.run_files import RunFiles
from bert_jax.run.trained_model import Provenance
from bert_jax.system.files import write_json
from bert_jax.system.reading import READINGS_FILE, Reading, as_file

GOLDEN = Path(__file__).parents[1] / "golden" / "gelu_erf"


def card_of(model: Path, folder: Path) -> tuple[list[str], str]:
    """Exports a model; returns the lines of the front matter of its card, and the text after it."""
    assert run(["export", str(model), str(folder / "exported")]) == 0
    _, front, text = (folder / "exported" / "README.md").read_text().split("---\n", 2)
    return front.splitlines(), text


def test_the_card_of_a_pretrained_run_states_its_settings_and_results(tiny_run, corpus, tmp_path):
    front, text = card_of(tiny_run.path, tmp_path)
    assert front[0].startswith("# license:")
    assert front[1:] == [
        *("language:", '- "en"', "library_name: transformers", "pipeline_tag: fill-mask"),
        *("tags:", "- bert", "- bert_jax"),
    ]
    results = json.loads(tiny_run.results_file.read_text())
    for said in (
        "# exported\n",
        "A BERT of 2 layers, width 32 and 2 attention heads, for sequences of up to 32 tokens.",
        "Vocabulary: 150 pieces (wordpiece, lower-cased). Class in transformers: BertForPreTraining.",
        "- began with random parameters\n",
        f"- text: `text:{corpus}`\n",
        "- objective: masked pieces and next sentences\n",
        "- 12 steps of 8 sequences of up to 32 tokens\n",
        "learning rate 0.002; seed 0\n",
        f"| masked-language accuracy | {results['mlm_accuracy']:.4f} | {results['baseline']['mlm_accuracy']:.4f} |\n",
        "from transformers import AutoTokenizer, BertForPreTraining\n",
    ):
        assert said in text
    assert "| loss |" not in text


def test_a_checkpoint_before_the_end_has_no_results(tiny_run, tmp_path):
    _, text = card_of(tiny_run.checkpoints / "00000008", tmp_path)
    assert "- 8 steps of 8 sequences" in text and "checkpoint at step 8 of 12" in text and "## Results" not in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("albert_base", "masked pieces and the order of sentences"),
        ("gpt_ltr", "each next piece"),
        ("xlnet_base", "pieces in random order, each from those before it and those that aren't predicted"),
        ("elmo", "each next and each previous piece"),
        ("electra_base", "masked pieces for a generator, and for a discriminator which pieces the generator replaced"),
    ],
)
def test_a_card_says_what_the_objective_asked(name, said):
    config = getattr(configs, name)
    assert f"objective: {said}" in model_card._training_lines(config, Provenance(config, steps=(1,)), Results())


@pytest.mark.parametrize(
    ("name", "said"), [("roberta", "A RoBERTa of 3 layers"), ("electra_generator", "An ELECTRA of 3 layers")]
)
def test_a_relative_is_called_by_its_name(tmp_path, name, said):
    front, text = card_of(GOLDEN.parent / "relatives" / name, tmp_path)
    assert said in text and "pipeline_tag: fill-mask" in front
    assert f"- {name.partition('_')[0]}" in front and "- bert" not in front


def test_the_card_of_vectors_says_how_both_libraries_compute_them(tmp_path):
    front, text = card_of(GOLDEN.parent / "vectors" / "bert", tmp_path)
    assert front[1:] == [
        *("library_name: sentence-transformers", "pipeline_tag: sentence-similarity", "tags:"),
        *("- sentence-transformers", "- feature-extraction", "- bert", "- bert_jax"),
    ]
    assert "is the vector of its first token, scaled to length 1; texts are cut to 12 tokens.\n" in text
    assert "SentenceTransformer('exported').encode(" in text and "bert_jax.load('exported').embed(" in text


def test_the_card_of_a_task_says_how_it_was_learned_and_measured(tiny_run, tmp_path):
    of_task = {"texts": ("query", "positive"), "source": "text:a.txt", "pool": "mean", "max_length": 32}
    run_of_pairs = write_vectors_run(tiny_run.path, tmp_path / "run", **of_task, batch_size=64)
    values = {"steps": 2, "best_step": 1, "ndcg@10": 0.5, "dev_rows": 30, "training_rows": 270}
    results = Results.model_validate(values)
    write_json(run_of_pairs.results_file, values)
    assert model_card._results(run_of_pairs.path, (1,)) == results
    assert not model_card._results(run_of_pairs.path, (2,)).metrics  # the card is of the best step
    config = RunFiles(run_of_pairs.path).config
    facts = list(model_card._training_lines(config, Provenance(config, steps=(1,)), results))
    assert "task: `vectors`, learned from `text:a.txt`, 270 rows" in facts
    assert "1 step of 64 pairs, whose texts are cut to 32 tokens; temperature 0.05, pooling mean" in facts
    of_rows = config.replace(task=config.task.replace(source=None, train="a.tsv", dev="b.tsv"))
    for of, rows in ((config, "30 pairs held out from the corpus"), (of_rows, "30 rows of `b.tsv`")):
        measured, *_ = model_card._results_table(of, results)
        assert measured == f"Measured on {rows}, by which the checkpoint was chosen.\n"


def test_an_encoder_alone_is_not_said_to_give_vectors_of_texts(tmp_path):
    shutil.copytree(GOLDEN.parent / "vectors" / "bert", tmp_path / "encoder")
    (tmp_path / "encoder" / "modules.json").unlink()
    front, text = card_of(tmp_path / "encoder", tmp_path)
    assert "pipeline_tag: feature-extraction" in front and "sentence" not in text


@pytest.mark.parametrize("imported", [True, False])
def test_nothing_is_claimed_of_a_model_that_was_not_trained_here(tmp_path, imported):
    source = tmp_path / "given"
    shutil.copytree(GOLDEN, source)
    if imported:
        assert run(["import", str(source), str(tmp_path / "run")]) == 0
    front, text = card_of(tmp_path / "run" if imported else source, tmp_path)
    assert "language:" not in front
    assert "given`, whose files don't say how it was trained\n" in text
    assert "steps" not in text and "optimizer" not in text and "## Results" not in text


def test_a_doubt_about_the_language_stands_in_the_card_in_place_of_the_language(tiny_copy, tmp_path):
    remark = "text:a.txt: 100% is Greek, and it is said to be in English; is it the right data.language?"
    write_json(tiny_copy.path / READINGS_FILE, as_file([Reading(subject="corpus", facts=[], remarks=[remark])]))
    front, text = card_of(tiny_copy.path, tmp_path)
    assert "language:" not in front and front[1].startswith("# language: add it")
    assert f"- warning about the input: `{remark}`\n" in text


def test_the_initial_model_has_a_column(tiny_config):
    values = {"bits_per_character": 1.5, "started_from": {"bits_per_character": 2.5}, "baseline": {"mlm_loss": 6.0}}
    text = "\n".join(model_card._results_table(tiny_config, Results.model_validate(values)))
    assert "| | model | by frequency alone | before the training |\n" in text
    assert "\n| bits per character | 1.5000 | | 2.5000 |" in text


def test_each_comparison_of_words_has_a_column(tiny_config):
    known = {"mlm_accuracy": 0.5}
    values = {"mlm_accuracy": 0.75, "baseline": known, "64/mlm_accuracy": 0.25}
    baselines = {"tf-idf": {"mlm_accuracy": 0.125}, "BM25": known}
    results = Results.model_validate(values | {"baselines": baselines})
    text = "\n".join(model_card._results_table(tiny_config, results))
    table = "| | model | tf-idf | BM25 |\n|---|---|---|---|\n| masked-language accuracy | 0.7500 | 0.1250 | 0.5000 |\n"
    assert table in text and "\n| 64/mlm_accuracy | 0.2500 | | |" in text


@pytest.mark.parametrize(
    "model_type, architecture, use",
    [
        ("xlnet", "XLNetForQuestionAnsweringSimple", "question-answering"),
        ("bert", "BertForQuestionAnswering", "question-answering"),
        ("electra", "ElectraForPreTraining", "feature-extraction"),
    ],
)
def test_the_use_of_a_class_is_that_of_its_name_for_bert(model_type, architecture, use):
    model = Mock(spec=Bert, config=ModelConfig.tiny().replace(model_type=model_type), task=None)
    assert f"pipeline_tag: {use}" in model_card._front_matter(None, model, architecture)
