"""Steps without finite gradients, and damaged records."""

import json

import jax
import numpy as np
import pytest
from conftest import prepared_copy

import bert_jax
from bert_jax.config.operation import MeshConfig
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.shards import InstanceSource, ShardReader, shard_path
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining import pretrain as pretrain_module
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.checkpoint_manifest import complete
from bert_jax.run.measurement import Mean
from bert_jax.run.metrics import read_metrics
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.state import TrainState
from bert_jax.system.errors import RunError
from bert_jax.training.ending import Skips
from bert_jax.training.input import BatchSource

pytestmark = pytest.mark.long


def batches_of(config, run: RunDirectory) -> BatchSource:
    """Those of the first phase."""
    trainer = pretraining_trainer(config, make_mesh(MeshConfig()), 150)
    return pretrain_module.training_source(trainer, 0, PreparedData.open(run.data(32)))


def poisoned(monkeypatch, steps):
    """Batches of these steps give no finite gradients."""
    read = BatchSource.__getitem__

    def poison(self, number):
        batch = read(self, number)
        return batch._replace(weight=batch.weight * np.inf) if number + 1 in steps else batch

    monkeypatch.setattr(BatchSource, "__getitem__", poison)


def test_too_many_skipped_steps_in_a_row_stop_the_run_with_what_led_to_it(tiny_config, untrained, monkeypatch):
    poisoned(monkeypatch, {2, 3, *range(6, 12)})
    rarely = {"logging": {"every": 100}, "evaluation": {"every": 100}}
    config = tiny_config.change(execution={"max_skipped_steps": 3}, **rarely)
    with pytest.raises(RunError) as failure:
        pretrain(config, untrained)
    good = untrained.checkpoints / "00000004"
    said = str(failure.value)
    assert "no finite gradient in 3 steps in a row, up to step 8" in said
    assert f"The last good checkpoint is {good}" in said and good in complete(untrained.checkpoints)
    source = batches_of(config, untrained)
    listed = json.loads((untrained.path / "skipped_steps.json").read_text())
    assert listed == {str(step): source.record_numbers(step - 1) for step in (6, 7, 8)}
    assert f"step 6 had {', '.join(map(str, source.record_numbers(5)))} (" in said
    first, second = (bert_jax.load(path).params for path in (good, untrained.checkpoints / "00000008"))
    assert not jax.tree.all(jax.tree.map(np.array_equal, first, second))  # step 5 was a good one


def test_skipped_steps_are_told_and_a_run_of_nothing_else_fails(tiny_run, tiny_config, tmp_path, monkeypatch, capsys):
    config = tiny_config.replace(logging=tiny_config.logging.replace(every=4))
    poisoned(monkeypatch, {2, 3, 9})
    pretrain(config, prepared_copy(tiny_run, tmp_path / "some"))
    said = capsys.readouterr().err
    for words in ("2 of 4 steps had no finite gradient and were skipped", "3 of 12 steps"):
        assert said.count(words) == 1
    assert "2 of 8 steps" not in said
    poisoned(monkeypatch, range(1, 13))  # fewer than max_skipped_steps
    run = prepared_copy(tiny_run, tmp_path / "all")
    with pytest.raises(RunError, match="no finite gradient in 12 steps in a row, .* start a new run$"):
        pretrain(config, run)
    lines = [line for line in read_metrics(run.metrics_file) if line["split"] == "train"]
    assert lines and all(line["loss"] is None and line["tokens_per_second"] is None for line in lines)


def test_the_device_is_asked_for_skipped_steps_only_when_there_may_be_enough(tiny_config):
    class Counter:
        asked = 0

        def __int__(self):
            self.asked += 1
            return self.value

    counter = Counter()
    measured = {"skipped_in_a_row": Mean(counter, None)}
    skips = Skips(10, TrainState(0, None, None, None, 0, 0, 0))
    for step in range(1, 1000):
        counter.value = 0
        assert not skips.too_many(measured, step)
    assert counter.asked == 99
    for in_a_row in range(1, 11):
        counter.value = in_a_row
        assert skips.too_many(measured, 999 + in_a_row) == (10 if in_a_row == 10 else 0)
    assert counter.asked <= 102


def test_a_damaged_record_stops_the_run_or_is_skipped_and_counted(tiny_config, untrained, capsys):
    shard = shard_path(untrained.data(32), "train", 0)
    records = InstanceSource(PreparedData.unchecked(untrained.data(32)), "train")._starts[1]
    number = next(record for record in batches_of(tiny_config, untrained).record_numbers(4) if record < records)
    data, record = bytearray(shard.read_bytes()), ShardReader(shard, records).read(number)
    data[data.find(record) + len(record) // 2] ^= 4
    shard.write_bytes(data)
    with pytest.raises(
        RunError, match=f"{shard}: record {number} .*of train. is damaged.*--input.damaged-records skip"
    ):
        pretrain(tiny_config, untrained)
    config = tiny_config.change(input={"damaged_records": "skip"}, evaluation={"every": 5})
    # It ends between two lines of the log, after the step that draws the record.
    results = pretrain(config, untrained, on_measured=lambda step, split, values: split == "eval").content
    assert results["steps"] == 5 and results["skipped_records"] == 1 and results["skipped_steps"] == 0
    assert f"record {number}" in capsys.readouterr().err.replace("\n", "")
    lines = [line for line in read_metrics(untrained.path / "metrics.jsonl") if line["split"] == "train"]
    assert sum(line["skipped_records"] for line in lines) == results["skipped_records"]
