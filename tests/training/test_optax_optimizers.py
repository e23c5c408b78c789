"""An optimizer of optax is used as it is, on a mesh, with steps that are skipped."""

import json
import os
import subprocess
import sys

import pytest
from conftest import faked_devices

ON_EIGHT_DEVICES = """
import json, sys
import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import ExecutionConfig, MeshConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.model.parameters import parameter_at
from bert_jax.training.batch import synthetic_batch
from bert_jax.pretraining.objective import PretrainingObjective
from bert_jax.model.sharding import batch_sharding, make_mesh
from bert_jax.training.trainer import Trainer

def matrices(params):  # of a block: of each layer, and of query, key and value, a matrix by itself
    def dimensions(path, leaf):
        facts = parameter_at("/".join(key.key for key in path))
        if not (facts.of_a_block and facts.inputs):
            return None
        own = [axis for axis in range(leaf.ndim) if axis not in facts.stacked]
        return MuonDimensionNumbers(tuple(own[: facts.inputs]), tuple(own[facts.inputs :]))
    return jax.tree_util.tree_map_with_path(dimensions, params)

config = RunConfig(
    model=ModelConfig(num_layers=2, hidden_size=64, num_heads=8, max_positions=16, vocabulary_size=200),
    optimizer=OptimizerConfig(peak_learning_rate=0.02, warmup=0.0),
    phases=(Phase(steps=20, length=16, batch_size=8),),
)
optimizers = {
    "muon": optax.contrib.muon(1.0, muon_weight_dimension_numbers=matrices, weight_decay=0.01),
    "adafactor": optax.adafactor(1.0, min_dim_size_to_factor=8),
}
batch = synthetic_batch(8, 16, 200)
for mesh in ((1, 1, 1), (2, 2, 2)):
    data, fsdp, tensor = mesh
    made = make_mesh(MeshConfig(data=data, fsdp=fsdp, tensor=tensor), jax.devices()[: data * fsdp * tensor])
    objective = PretrainingObjective(config, 4)
    trainer = Trainer(config, made, objective, optimizers[sys.argv[1]])
    step, state = trainer.train_step(0), trainer.initial_state()
    split = sum(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(state.optimizer))
    rows, losses = batch_sharding(made), []
    for number in range(8):
        poisoned = number == 3
        weight = batch.weight * (float("nan") if poisoned else 1.0)
        before = jax.device_get((state.params, state.optimizer)) if poisoned else None
        state, measured = step(state, jax.device_put(batch._replace(weight=weight), rows))
        if poisoned:
            after = jax.device_get((state.params, state.optimizer))
            same = all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), before, after)))
        losses.append(float(measured["loss"].value))
    print(json.dumps({"losses": losses, "split": split, "skipped": int(state.skipped), "same": same}))
"""


@pytest.mark.parametrize("name, split_slots", [("muon", 10), ("adafactor", 1)])
def test_it_trains_alike_on_one_and_on_eight_devices(name, split_slots):
    environment = os.environ | faked_devices(8)
    line = [sys.executable, "-c", ON_EIGHT_DEVICES, name]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    alone, split = map(json.loads, done.stdout.splitlines())
    assert alone["losses"] == pytest.approx(split["losses"], rel=1e-3)
    assert alone["losses"][-1] < alone["losses"][0] - 0.2
    assert alone["split"] == 0 and split["split"] >= split_slots  # of their shape
    assert alone["skipped"] == split["skipped"] == 1 and alone["same"] and split["same"]
