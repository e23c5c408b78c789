"""The processes of a suite."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bert_jax.cli.main import run
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.finetuning.finetune import finetune
from bert_jax.products.suite.processes import Processes
from bert_jax.run.config_files import load_config
from bert_jax.system.errors import Interrupted, RunError, UsageError
from bert_jax.system.workers import available_cores

GRADIENT = """
import hashlib, jax, jax.numpy as jnp, numpy as np
def loss(x, w):
    for _ in range(3):
        x = jax.nn.gelu(x @ w)
        x = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-6)
    return (x**2).sum()
x, w = (jax.random.normal(jax.random.key(0), shape) for shape in ((2048, 256), (256, 256)))
digest = hashlib.sha256(np.asarray(jax.jit(jax.grad(loss, argnums=1))(x, w * 0.06)).tobytes()).hexdigest()
"""


@pytest.mark.long
@pytest.mark.skipif(available_cores() < 2, reason="one core can't be shared")
def test_results_do_not_depend_on_how_many_runs_share_the_cores(monkeypatch, tmp_path, capsys):
    """Without PJRT_NPROC they do: XLA divides sums by the number of threads."""
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    (tmp_path / "empty.toml").touch()
    assert run(["suite", str(tmp_path / "empty.toml"), "--workdir", str(tmp_path / "W")]) == 2
    assert os.environ["PJRT_NPROC"] == str(available_cores())
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (tmp_path / "gradient.py").write_text(GRADIENT)
    code, hashes = f"__import__('runpy').run_path({str(tmp_path / 'gradient.py')!r})['digest']", set()
    for at_once in (1, 2):
        processes = Processes(at_once)
        with processes.pool() as pool:
            hashes |= {each.result() for each in [pool.submit(processes.call, eval, code) for _ in range(at_once)]}
    assert len(hashes) == 1


@pytest.mark.long
def test_a_training_that_is_ended_writes_a_checkpoint_and_its_output_is_in_its_log(tiny_run, tmp_path, capfd):
    rows = "".join(f"the {word} house\t{label}\n" for word, label in (("old", 1), ("quiet", 0)) * 8)
    (tmp_path / "rows.tsv").write_text(f"sentence\tlabel\n{rows}")
    task = {"train": str(tmp_path / "rows.tsv"), "epochs": 100_000, "max_length": 16, "batch_size": 8}
    config = load_config("sst2", FinetuneConfig).change(task=task | {"dev": None})
    config = config.replace(init=str(tiny_run.path)).set({"logging.every": 1})
    processes, log = Processes(1), tmp_path / "logs" / "one.txt"
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(processes.call, finetune, config, tmp_path / "run", log=log)
        while not (tmp_path / "run/metrics.jsonl").exists():
            assert not ended.done(), ended.result()
            time.sleep(0.1)
        processes.end()
        with pytest.raises(Interrupted, match=r"stopped at step [\d,]+ of 200,000"):
            ended.result()
    assert list((tmp_path / "run/checkpoints").glob("*/manifest.json")) and "stopping after step" in log.read_text()
    assert "stopping" not in "".join(capfd.readouterr())
    with pytest.raises(RunError, match="the suite ends"):
        processes.call(abs, -1)


def test_wrong_use_in_a_process_with_a_log_arrives_as_itself(tmp_path):
    with pytest.raises(UsageError, match="no config file at sst3"):
        Processes(1).call(load_config, "sst3", FinetuneConfig, log=tmp_path / "logs" / "one.txt")
