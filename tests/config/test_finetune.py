"""The fine-tuning configs that come with the project."""

import pytest

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import Phase
from bert_jax.run.config_files import find_config, names_for

OWN = {"classes", "labels", "number", "tags", "answers", "choices"}
"""The configs for rows of one's own."""


@pytest.mark.parametrize("name", names_for(FinetuneConfig))
def test_a_config_gives_its_command_and_keeps_its_settings_as_json(name):
    found = find_config(name)
    config = found.config
    assert isinstance(config, FinetuneConfig) and config.task.name == ("" if name in OWN else name)
    assert f"bert-jax finetune {name} --init RUN --workdir RUN2" in found.text
    assert "--task.train FILE --task.dev FILE" in found.text
    assert bool(config.task.train) == bool(config.task.dev) == ("tfds build" in found.text)
    assert FinetuneConfig(**config.model_dump(mode="json")) == config


def test_the_public_sets_are_there():
    glue = {"cola", "sst2", "mrpc", "qqp", "mnli", "qnli", "rte", "wnli", "stsb"}
    others = {"boolq", "cb", "copa", "wic", "xnli", "terra", "danetqa", "russe", "parus", "swag", "chnsenticorp"}
    tagged = {"conll2003", "wnut17", "ud", "resume_ner"}
    assert set(names_for(FinetuneConfig)) == OWN | glue | others | tagged | {"squad", "squad2", "vectors"}


@pytest.mark.parametrize("train, name", [("data/reviews.tsv", "reviews.tsv"), ("tfds:glue/cola:train", "cola:train")])
def test_a_task_without_a_name_is_called_like_its_rows(train, name):
    config = FinetuneConfig(task=TaskConfig(kind="class", train=train))
    phase = Phase(steps=1, length=8, batch_size=1)
    assert config.run_config(ModelConfig.tiny(), config.task, "", phase).task.name == name
    named = config.change(task={"name": "stars"})
    assert named.run_config(ModelConfig.tiny(), named.task, "", phase).task.name == "stars"


@pytest.mark.parametrize("name, rate", [("classes", 5e-5), ("squad", 3e-5), ("vectors", 2e-5)])
def test_the_default_rate_is_that_of_the_original_or_of_the_task(name, rate):
    optimizer = find_config(name).config.optimizer
    assert (optimizer.peak_learning_rate, optimizer.bias_correction) == (rate, True)
