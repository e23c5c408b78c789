"""What a training or a preparation would do, in words."""

import dataclasses
import shutil
import time

import pytest
from conftest import stories

from bert_jax.pretraining import sample_preparation
from bert_jax.pretraining.dry_run import preparation_estimates, pretraining_estimates
from bert_jax.pretraining.sample_preparation import PreparationTime, common_vocabulary
from bert_jax.records.corpus import open_corpus
from bert_jax.records.sample import read_sample
from bert_jax.run.opened_models import OpenedModels
from bert_jax.system.figures import Figure


def planned(config, path) -> dict[str, str]:
    return dict(pretraining_estimates(config, path, OpenedModels()))


def test_a_new_run_is_planned_with_its_text_steps_and_memory(tiny_config, tmp_path, corpus):
    facts = planned(tiny_config, tmp_path / "run")
    of_text = ["format", "files", "size", "documents", "begins with", "a line has", "languages"]
    assert list(facts)[:4] == ["run", "devices", "vocabulary", "data, length 32"]
    assert list(facts)[4:] == [*of_text, "phase 0", "memory, length 32", "checkpoints"]
    assert facts["run"].endswith("a new one of 12 steps")
    size = corpus.stat().st_size / 1e6
    assert facts["data, length 32"] == f"to be prepared from text:{corpus}: {size:,.4g} MB"
    assert facts["vocabulary"].startswith("150 pieces, wordpiece, trained on the text")
    steps = "FLOPs by formula: 12 steps of 8 sequences of up to 32 tokens, 3,072 tokens at most"
    assert facts["phase 0"].endswith(steps)
    # By default two checkpoints are kept; the best one and one being written lie beside them.
    each, most = (float(facts["checkpoints"].split(end)[0].split()[-1]) for end in (" MB each", " MB on disk by"))
    assert f"state {each} " in facts["memory, length 32"] and abs(most - (tiny_config.checkpoints.keep + 2) * each) < 1
    assert not list(tmp_path.iterdir())


def test_of_a_run_that_is_there_the_steps_left_are_planned(tiny_config, tiny_run):
    longer = tiny_config.replace(phases=(tiny_config.phases[0].replace(steps=20),))
    facts = planned(longer, tiny_run.path)
    assert "go on from step 12 of 20" in facts["run"] and "20 steps (8 left)" in facts["phase 0"]
    assert facts["data, length 32"].startswith("there: ") and "there: " in facts["vocabulary"]
    assert "finished: nothing to do" in planned(tiny_config, tiny_run.path)["run"]


def test_without_init_the_vocabulary_is_the_teachers(tiny_config, tiny_run, tmp_path):
    teacher = str(tiny_run.path)
    facts = planned(tiny_config.replace(teacher=teacher), tmp_path / "run")
    assert facts["vocabulary"].endswith(f"read from {teacher}")


def test_data_of_other_settings_are_not_taken_for_those_of_the_run(tiny_config, untrained):
    assert planned(tiny_config, untrained.path)["data, length 32"].startswith("there: ")
    other = tiny_config.replace(data=tiny_config.data.replace(dupe_factor=3))
    assert planned(other, untrained.path)["data, length 32"].endswith("with other settings, and is deleted")
    shutil.rmtree(untrained.tokenizer_directory)  # without which nothing is known of their settings
    assert planned(other, untrained.path)["data, length 32"].startswith("there: ")


@pytest.mark.long
def test_the_shares_of_sources_are_estimated_from_their_sizes(tiny_config, tmp_path):
    for language, paragraphs in (("de", 100), ("sw", 25)):
        (tmp_path / f"{language}.txt").write_text("eins zwei drei vier\n\n" * paragraphs)
    sources = tuple(f"text:{tmp_path}/{language}.txt" for language in ("de", "sw"))
    data = tiny_config.data.replace(source=sources, language=("de", "sw"), smoothing=0.5)
    phases = (*tiny_config.phases, tiny_config.phases[0].replace(smoothing=0.0))
    facts = planned(tiny_config.replace(data=data, phases=phases), tmp_path / "run")
    assert facts["sources"] == "size, and share of the sequences in each phase, estimated from the sizes"
    assert facts[f"{sources[0]} (de)"] == "0.0021 MB; 66.7%, 50.0%"
    assert facts[f"{sources[1]} (sw)"] == "0.000525 MB; 33.3%, 50.0%"
    assert "sources" not in planned(tiny_config, tmp_path / "run")
    data = data.replace(source=(sources[0], "python-docs"), language=("de", "en"), smoothing=None)
    facts = planned(tiny_config.replace(data=data), tmp_path / "run")
    assert facts["sources"] == "size" and facts[f"{sources[0]} (de)"] == "0.0021 MB"
    facts = planned(tiny_config.replace(data=data.replace(weights=(0.9, 0.1))), tmp_path / "run")
    assert facts[f"{sources[0]} (de)"] == "0.0021 MB; 90.0%" and "estimated" not in facts["sources"]


TIME = PreparationTime(chunks=20, shuffled_bytes=10**8, shard_bytes=10**9, vocabulary_seconds=30.0, work_seconds=400.0)


def test_workers_share_the_chunks_and_not_the_vocabulary():
    times = [TIME.with_workers(workers) for workers in (1, 10, 20, 100)]
    assert [3600 * time.hours for time in times] == pytest.approx([430.0, 70.0, 50.0, 50.0])
    assert (TIME + TIME).chunks == 40 and (TIME + TIME).with_workers(100).hours == pytest.approx(80 / 3600)


@pytest.fixture
def mixed(tiny_config, tmp_path):
    """`tiny_config` with two sources."""
    for name, count in (("a", 60), ("b", 30)):
        (tmp_path / f"{name}.txt").write_text(stories(count, first=100 * count))
    sources = tuple(f"text:{tmp_path}/{name}.txt" for name in "ab")
    return tiny_config.change(data={"source": sources, "language": ("en", "en")})


def test_the_vocabulary_of_several_sources_is_trained_once(mixed, monkeypatch):
    """On at most vocabulary.sample_megabytes of them all."""
    clock, now, real = [0.0], time.perf_counter, sample_preparation.learned_tokenizer

    def trained(*given):
        clock[0] += 10.0
        return real(*given)

    monkeypatch.setattr(sample_preparation, "learned_tokenizer", trained)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0] + now() / 1e6)
    assert dict(preparation_estimates(mixed, OpenedModels()))["vocabulary"] == "10.0 s"
    samples = [dataclasses.replace(read_sample(part), share=0.001) for part in open_corpus(mixed.data).parts]
    mixed = mixed.change(vocabulary={"sample_megabytes": 1})
    seconds = common_vocabulary(mixed, samples, OpenedModels()).seconds
    assert seconds == pytest.approx(10 * 1e6 / sum(sample.kept_bytes for sample in samples), rel=0.01)


def test_the_plan_of_a_preparation_adds_up_its_sources(mixed, tmp_path):
    sources = mixed.data.source
    facts = dict(preparation_estimates(mixed, OpenedModels()))
    of_time = ["sequences, one core", "both, on this machine's cores", "rate, measured"]
    workers = ["1 worker", "10 workers", "100 workers"]
    assert list(facts) == [*sources, "chunks", "text sent to workers", "written", "vocabulary", *of_time, *workers]
    size = sum((tmp_path / f"{name}.txt").stat().st_size for name in "ab")
    assert facts["text sent to workers"] == f"{size / 1e6:.2f} MB (not with Spark)"
    assert "the whole looked at" in facts[sources[0]]
    assert facts["chunks"] == "3 of about 0.02 MB of text" and facts["written"].endswith(" MB of sequences of 32")
    assert Figure(PreparationTime, "vocabulary_seconds").text(0.0) == "given"
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".txt"]
