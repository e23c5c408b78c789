"""One device or eight: the same run."""

import json
import os
import subprocess

import pytest
from conftest import faked_devices, program

from bert_jax.interchange.relatives import RELATIVES
from bert_jax.pretraining.dataset import check_preparation, prepare_data
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles

ON_EIGHT_DEVICES = """
import json, math, sys
from pathlib import Path

import jax

from bert_jax.config.operation import MeshConfig
from bert_jax.pretraining.dataset import prepared_for
from bert_jax.pretraining.pretrain import training_source
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.training.batch import read_ahead
from bert_jax.pretraining.dataset import check_preparation, prepare_data
from bert_jax.run.run_files import RunFiles
from bert_jax.run.run_directory import RunDirectory
from bert_jax.model.sharding import batch_sharding, make_mesh, parameter_spec, num_shards

run = RunDirectory(sys.argv[1])
config = RunFiles(run.path).config
meshes = {name: MeshConfig(**dict(zip(("data", "fsdp", "tensor"), map(int, name.split("x"))))) for name in sys.argv[2:]}
for name, mesh in meshes.items():
    size = mesh.data * mesh.fsdp * mesh.tensor
    trainer = pretraining_trainer(config, make_mesh(mesh, jax.devices()[:size]), 150)
    batches = read_ahead(training_source(trainer, 0, prepared_for(config, run, 128)))
    step, state, losses = trainer.train_step(0), trainer.initial_state(), []
    for _ in range(config.phases[0].steps):
        state, measured = step(state, jax.device_put(next(batches), batch_sharding(trainer.mesh)))
        losses.append(float(measured["loss"].value))
    whole = []
    for path, array in jax.tree_util.tree_leaves_with_path((state.params, state.optimizer)):
        leaf = "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", None)))) for key in path)
        split = math.prod(num_shards(trainer.mesh, axes) for axes in parameter_spec(leaf)) if array.ndim else 1
        whole += [leaf for shard in array.addressable_shards if shard.data.size * split != array.size]
    print(json.dumps({"mesh": name, "losses": losses, "whole": whole}))
"""


MESHES = "8x1x1", "1x8x1", "2x2x2", "1x1x8"
SEEN_EACH_TIME = {"2x2x2"}
"""It splits by every axis; the others with --tier slow."""


@pytest.fixture(params=MESHES)
def mesh(request, slow) -> str:
    if not slow and request.param not in SEEN_EACH_TIME:
        pytest.skip("with --tier slow")
    return request.param


def changed(config, steps, **changes):
    """`config` with so many steps, and a width of which every row of the table splits by up to 8."""
    phases = tuple(phase.replace(steps=steps) for phase in config.phases)
    logging = config.logging.replace(every=1)
    return config.replace(phases=phases, logging=logging).change(**changes).change(model={"hidden_size": 64})


def losses(run, meshes):
    """The losses of each mesh over faked devices, dropout on and several sequences a row."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = program(ON_EIGHT_DEVICES, run, *meshes, env=os.environ | faked_devices(8), **pipes)
    output, said = process.communicate()
    assert process.returncode == 0, said
    return {line["mesh"]: line for line in map(json.loads, output.splitlines())}


@pytest.fixture(scope="module")
def results(packed_run, tmp_path_factory, slow):
    run = tmp_path_factory.mktemp("mesh")
    units = {"units": ("piece:1", "word:1", "span:1")}
    config = changed(RunFiles(packed_run.path).config, 20, model={"num_heads": 8}, objective=units)
    write_config(run / "config.json", config)
    for name in ("tokenizer", "data"):
        (run / name).symlink_to(packed_run.path / name)
    return losses(run, ("1x1x1", *(MESHES if slow else SEEN_EACH_TIME)))


OTHER_MODELS = {
    "xlnet": (
        "2x2x2",
        {"positions": "relative", "num_segments": 0, "num_heads": 8},
        {"predict": "permuted", "units": ("context",)},
    ),
    "mpnet": ("2x2x2", {"positions": "bucketed", "num_segments": 0, "num_heads": 8}, {}),
    "deberta": (
        "2x2x2",
        {"positions": "disentangled", "distance_buckets": 8, "clamped_distance": 64, "num_segments": 0, "num_heads": 8}
        | {"discriminator": True, "generator_divisor": 1, "generator_layers": 1, "shared_embeddings": "disentangled"}
        | {"mask_decoder": True},
        {"predict": "replaced"},
    ),
    "eurobert": (
        "2x2x2",
        {name: value for name, value in RELATIVES["eurobert"].settings.items() if name not in ("dropout", "pooler")}
        | {"num_heads": 8, "key_value_heads": 2, "activation": "silu"},
        {},
    ),
    "elmo": ("4x2x1", {"layer": "lstm", "positions": "none", "num_segments": 0}, {"predict": "both"}),
}


@pytest.mark.parametrize("name", OTHER_MODELS)
@pytest.mark.long
def test_other_models_do_not_depend_on_it_either(packed_config, tmp_path, name):
    mesh, model, objective = OTHER_MODELS[name]
    config = changed(packed_config, 5, model=model, objective=objective | {"pair": "none"})
    run = RunDirectory(tmp_path / "run")
    inputs = check_preparation(config, run, OpenedModels())
    run.open(config)
    prepare_data(config, run, inputs)
    lines = losses(run.path, ("1x1x1", mesh))
    assert len(lines[mesh]["losses"]) == 5
    assert lines[mesh]["losses"] == pytest.approx(lines["1x1x1"]["losses"], rel=1e-5)


@pytest.mark.long
def test_losses_do_not_depend_on_the_mesh(results, mesh):
    on_one_device = results["1x1x1"]["losses"]
    assert len(on_one_device) == 20 and on_one_device[0] > on_one_device[-1]
    assert results[mesh]["losses"] == pytest.approx(on_one_device, rel=1e-5)


@pytest.mark.long
def test_what_the_table_splits_is_held_whole_by_no_device(results, mesh):
    assert results[mesh]["whole"] == []
