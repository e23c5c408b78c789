"""One device or eight: the same run."""

import shutil

import pytest
from conftest import command

from bert_jax.training.metrics import read_metrics


@pytest.fixture(scope="module")
def losses(config_file, tiny_run, tmp_path_factory):
    """Runs 20 steps with dropout over `devices` faked devices; returns every step's loss and the last evaluation's."""

    def train(devices, *flags):
        run = tmp_path_factory.mktemp("mesh")
        for name in ("tokenizer", "data"):
            shutil.copytree(tiny_run.path / name, run / name)
        operation = ["--phases.0.steps", 20, "--logging.every", 1, "--evaluation.every", 20, "--checkpoints.every", 20]
        environment = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        process = command("pretrain", config_file, "--workdir", run, *operation, *flags, **environment)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        return [line["loss"] for line in read_metrics(run / "metrics.jsonl")]

    return train


@pytest.fixture(scope="module")
def on_one_device(losses):
    return losses(1)


@pytest.mark.parametrize("data, fsdp", [(8, 1), (2, 4)])
def test_losses_do_not_depend_on_the_mesh(losses, on_one_device, data, fsdp):
    assert len(on_one_device) == 21 and on_one_device[0] > on_one_device[-2]
    assert losses(data * fsdp, "--mesh.data", data, "--mesh.fsdp", fsdp) == pytest.approx(on_one_device, rel=1e-5)
