"""The processes of a suite."""

import os

import pytest

from bert_jax.cli.main import run
from bert_jax.products.suite import commands
from bert_jax.products.suite.commands import Commands
from bert_jax.system.workers import available_cores

GRADIENT = """
import hashlib, jax, jax.numpy as jnp, numpy as np
def loss(x, w):
    for _ in range(3):
        x = jax.nn.gelu(x @ w)
        x = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-6)
    return (x**2).sum()
x, w = (jax.random.normal(jax.random.key(0), shape) for shape in ((2048, 256), (256, 256)))
print(hashlib.sha256(np.asarray(jax.jit(jax.grad(loss, argnums=1))(x, w * 0.06)).tobytes()).hexdigest())
"""


@pytest.mark.long
@pytest.mark.skipif(available_cores() < 2, reason="one core can't be shared")
def test_results_do_not_depend_on_how_many_runs_share_the_cores(monkeypatch, tmp_path, capsys):
    """Without PJRT_NPROC they do: XLA divides sums by the number of threads."""
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    assert run(["suite", str(tmp_path / "absent.toml"), "--workdir", str(tmp_path / "W")]) == 2
    assert os.environ["PJRT_NPROC"] == str(available_cores())
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr(commands, "_ENTRY", GRADIENT)
    hashes = set()
    for at_once in (1, 2):
        at_work = Commands(at_once)
        with at_work.pool() as pool:
            hashes |= {future.result() for future in [pool.submit(at_work.run) for _ in range(at_once)]}
    assert len(hashes) == 1
