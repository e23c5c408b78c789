"""Fixtures for the whole session: one small corpus and one run trained on it."""

import ctypes
import gc
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["BERT_JAX_AUTO_DTYPE"] = "float32"  # the same on every machine
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # compiles in half the time, and the tests compute little
# Without its newer code generator XLA compiles in half the time again, for programs with half the mappings of memory.
# From 0.12 on jaxlib has no other, and ends the process at a flag that it doesn't know.
_JAXLIB = tuple(map(int, version("jaxlib").split(".")[:2]))
if _JAXLIB < (0, 12):
    os.environ["XLA_FLAGS"] = f"--xla_cpu_use_fusion_emitters=false {os.environ.get('XLA_FLAGS', '')}"
elif _JAXLIB == (0, 12):  # computes wrong on some CPUs (bert_jax/training/trust.py)
    os.environ["XLA_FLAGS"] = f"--xla_cpu_experimental_ynn_fusion_type= {os.environ.get('XLA_FLAGS', '')}"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "bert_jax_test_compiled"))

from typechecker import check_arrays

_WITH_ARRAYS = "batching finetuning inference instances interchange layout model pretraining products training"
check_arrays([f"bert_jax.{name}" for name in _WITH_ARRAYS.split()])

import jax
import numpy as np
import pytest
from hypothesis import strategies as st

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)

from object_stores import azure_server, bucket, bucket_server, s3, s3_server  # noqa: F401
from shared_steps import forget_steps, share_steps
from vector_runs import write_vectors_run
from warm_process import COMMAND, WarmProcess, can_be_warm

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig, LoggingConfig, PreparationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase
from bert_jax.instances.sentences import Sentences
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system import machine
from bert_jax.text import identification
from bert_jax.training import estimate

NOUNS = "cat dog house river stone window garden teacher letter winter market bridge painter forest".split()
VERBS = "sees finds likes leaves paints crosses remembers follows answers builds".split()
ADJECTIVES = "old green quiet small bright broken distant careful".split()

share_steps()
# A command that runs in a process of tests must not keep the memory that it frees, as a command of its own does.
machine.keep_freed_memory = lambda: False
identification.unload = lambda: None  # the next test needs the model again
os.fsync = lambda descriptor: None  # no test outlives a power cut
estimate._PRODUCT_SIZE = 64  # no test looks at the hours of an estimate, and larger products take seconds

MMAP_THRESHOLD, TRIM_THRESHOLD = (-3, 1 << 17), (-1, 1 << 17)
"""M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of <malloc.h> at glibc's first values. Otherwise glibc raises them up to 32 and
64 MB, and a process of tests keeps 0.3 GB more, in pieces between blocks that are in use."""
if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
    for option in (MMAP_THRESHOLD, TRIM_THRESHOLD):
        mallopt(*option)

FREED_FROM_BYTES = 1_450_000_000
"""Memory of a process of tests from which on compiled programs are freed after a test: two processes are to run on a
machine of 8 GB. A process has 1 GB when all packages of the extra `full` are imported, and a test adds up to 0.4 GB."""
FREED_AGAIN_BYTES = 250_000_000
"""Growth from which on they are freed again: what stays is held by fixtures and libraries."""
bounded_memory_from = [FREED_FROM_BYTES]
"""The memory from which on this process frees compiled programs next."""
PEAKS_OF_WORKERS: dict[str, int] = {}
"""Peak memory of each worker of pytest-xdist."""

BEGUN_FIRST = "test_hosts.py", "test_kills.py", "test_golden_trainings.py", "test_pretrain.py", "test_bucket_run.py"
"""Files whose tests take a minute or more: at the end, one process would be at them while the others had nothing."""


MAY_SKIP = (
    "BERT_JAX_REFERENCE names no folder",
    "bash is not installed",
    "fish is not installed",
    "only root may",
    "PR_SET_PDEATHSIG is Linux'",
    "Spark needs Java",
    "processes are adopted on Linux alone",
    "the allocator of glibc",
    "the fault of jaxlib 0.10.2",
    "there is no browser",
    "XLA's YNN is off",
    "with --tier full",
    "with --tier slow",
    "zsh is not installed",
)
"""How the reasons begin for which tests may be skipped: facts of the machine, since the extra `full` brings every
package."""
LACKS_PACKAGE = "could not import "
"""How the reason of pytest.importorskip begins. The quick tier may skip for want of a package: `test` has few."""


def pytest_addoption(parser):
    parser.addoption(
        "--tier",
        choices=("quick", "full", "slow"),
        default="quick",
        help="quick leaves out the tests that are marked long, full has every test, slow also damages 10^5 files "
        "instead of 2,000, kills 100 times, ...",
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "long(first=0): takes over two seconds; the quick tier has the `first` cases alone unless its file is named",
    )


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: item.path.name not in BEGUN_FIRST)
    if config.getoption("--tier") == "quick":
        named = {(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args}
        cases = Counter[str]()
        for item in items:
            if (long := item.get_closest_marker("long")) and item.path.resolve() not in named:
                test = item.nodeid.partition("[")[0]
                cases[test] += 1
                if cases[test] > long.kwargs.get("first", 0):
                    item.add_marker(pytest.mark.skip(reason="with --tier full, or if its file is named"))


def pytest_collection_finish(session):
    """Lets the garbage collector pass over the 800,000 objects of the imported modules from now on."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    return skip_checked((yield), item.config.getoption("--tier"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return skip_checked((yield), collector.config.getoption("--tier"))


def skip_checked(report, tier):
    """Makes a skip a failure, unless its reason is in MAY_SKIP or the quick tier lacks a package."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        if not reason.startswith((*MAY_SKIP, LACKS_PACKAGE) if tier == "quick" else MAY_SKIP):
            report.outcome, report.longrepr = "failed", f"skipped, though the extra full brings every package: {reason}"
    return report


@pytest.fixture(scope="module", autouse=True)
def few_mappings():
    """Frees the compiled programs of a process of tests after a file, where their memory mappings are many.

    Each program has tens of mappings. Linux allows a process 65,530 (vm.max_map_count), and XLA was seen to end by a
    segmentation fault near that number, when it loaded another program.
    """
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and len(mappings.read_bytes().splitlines()) > 20_000:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def bounded_memory():
    """Frees the compiled programs of a process of tests where its memory has grown by much since it was last freed."""
    yield
    if resident_bytes() > bounded_memory_from[-1]:
        forget_steps()
        jax.clear_caches()
        gc.collect()
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)
        bounded_memory_from[:] = [max(FREED_FROM_BYTES, resident_bytes() + FREED_AGAIN_BYTES)]


def resident_bytes() -> int:
    """Memory of this process; 0 where the system has no /proc."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * resource.getpagesize() if status.exists() else 0


def pytest_sessionfinish(session):
    """Hands the peak memory of a worker of pytest-xdist to the process that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak_bytes"] = peak_bytes()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    PEAKS_OF_WORKERS[node.gateway.id] = getattr(node, "workeroutput", {}).get("peak_bytes", 0)


def pytest_terminal_summary(terminalreporter):
    peaks = PEAKS_OF_WORKERS or {"this process": peak_bytes()}
    terminalreporter.write_line(
        f"peak memory: {', '.join(f'{name} {size / 1e9:.2f} GB' for name, size in peaks.items())}"
    )


def peak_bytes() -> int:
    """The largest memory that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels as the operations of JAX that they consist of, on this machine."""
    from jax.experimental import pallas

    compiled = pallas.pallas_call
    monkeypatch.setattr(pallas, "pallas_call", lambda *given, **named: compiled(*given, **named | {"interpret": True}))


@pytest.fixture
def on_tpu(monkeypatch, interpreted):
    """Attention as on a TPU, by the operations of its kernels on this machine."""
    monkeypatch.setattr("bert_jax.model.kernels.attention_form.platform", lambda: "tpu")


@pytest.fixture(scope="session")
def slow(request) -> bool:
    """Whether the slow tier runs, in which some tests take a long form."""
    return request.config.getoption("--tier") == "slow"


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder that BERT_JAX_REFERENCE names. `reference/` there holds what the original makes of given text."""
    folder = os.environ.get("BERT_JAX_REFERENCE")
    if not folder:
        pytest.skip("BERT_JAX_REFERENCE names no folder that holds reference/ and data/")
    return Path(folder)


def story(seed: int, paragraphs: int = 4) -> list[str]:
    """Paragraphs about few things, so that neighbouring sentences have words in common."""
    rng = random.Random(seed)
    nouns = rng.sample(NOUNS, 4)
    return [
        " ".join(
            f"The {rng.choice(ADJECTIVES)} {rng.choice(nouns)} {rng.choice(VERBS)} the {rng.choice(nouns)} "
            f"near {rng.choice(nouns)} number {rng.randint(0, 99)}."
            for _ in range(rng.randint(1, 5))
        )
        for _ in range(paragraphs)
    ]


def stories(count: int, first: int = 0) -> str:
    """`count` documents as a text file holds them."""
    return "\n\n".join("\n".join(story(seed)) for seed in range(first, first + count)) + "\n"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """A text file of 120 short documents."""
    path = tmp_path_factory.mktemp("corpus") / "stories.txt"
    path.write_text(stories(120), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_config(corpus) -> RunConfig:
    """A run of seconds: every part of the real thing, very small."""
    return RunConfig(
        model=ModelConfig(num_layers=2, hidden_size=32, num_heads=2, max_positions=32),
        vocabulary=VocabularyConfig(size=150),
        data=DataConfig(source=f"text:{corpus}", held_out=0.1, chunk_megabytes=0.02),
        optimizer=OptimizerConfig(peak_learning_rate=2e-3, warmup=0.1),
        phases=(Phase(steps=12, length=32, batch_size=8),),
        evaluation=EvaluationConfig(every=6),
        checkpoints=CheckpointConfig(every=4),
        logging=LoggingConfig(every=3, tensorboard=False),
        preparation=PreparationConfig(processes=1),
    )


@pytest.fixture(scope="session")
def tiny_run(tiny_config, tmp_path_factory) -> RunDirectory:
    """`tiny_config`, trained to its end. Not to be changed."""
    run = RunDirectory(tmp_path_factory.mktemp("run"))
    pretrain(tiny_config, run)
    return run


@pytest.fixture(scope="session")
def vectors_run(tiny_run, tmp_path_factory) -> RunDirectory:
    """The encoder of `tiny_run` as a run of kind `vectors`. Not to be changed."""
    path = tmp_path_factory.mktemp("vectors") / "run"
    return write_vectors_run(tiny_run.path, path, texts=("query", "positive"), max_length=16, widths=(16, 8))


@pytest.fixture
def tiny_copy(tiny_run, tmp_path) -> RunDirectory:
    """A copy of `tiny_run`, of which anything may be changed."""
    return RunDirectory(shutil.copytree(tiny_run.path, tmp_path / "run"))


@pytest.fixture
def untrained(tiny_run, tmp_path) -> RunDirectory:
    """A run with the tokenizer and the data of `tiny_run`, of which no step is done."""
    return prepared_copy(tiny_run, tmp_path / "untrained")


@pytest.fixture(scope="session")
def packed_config(tiny_config) -> RunConfig:
    """Of short sequences, several in a row."""
    return tiny_config.replace(
        data=tiny_config.data.replace(packed=True, short_sequence_probability=0.9),
        model=tiny_config.model.replace(max_positions=128),
        phases=(tiny_config.phases[0].replace(length=128),),
    )


@pytest.fixture(scope="session")
def packed_run(packed_config, tmp_path_factory) -> RunDirectory:
    """`packed_config`, trained to its end. Not to be changed."""
    run = RunDirectory(tmp_path_factory.mktemp("packed"))
    pretrain(packed_config, run)
    return run


@pytest.fixture(scope="session")
def config_file(tiny_config, tmp_path_factory) -> Path:
    """`tiny_config` as a config file, for commands that run in a process of their own."""
    path = tmp_path_factory.mktemp("config") / "tiny.py"
    values = tiny_config.model_dump(mode="json")
    path.write_text(f"from bert_jax.config.run import RunConfig\n\nconfig = RunConfig(**{values!r})\n")
    return path


def prepared_copy(run: RunDirectory, path: Path) -> RunDirectory:
    """A run at `path` with the tokenizer and the data of `run`, of which no step is done."""
    for name in ("tokenizer", "data"):
        shutil.copytree(run.path / name, path / name)
    return RunDirectory(path)


DOCUMENTS = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=2, max_size=8)
"""Documents as the lengths of their sentences."""


def numbered(lengths: list[list[int]]) -> Sentences:
    """Documents of such sentences, every token its own position, so that where it came from can be read off."""
    sentences = [size for document in lengths for size in document]
    return Sentences(
        np.arange(sum(sentences), dtype=np.int32), np.cumsum([0, *sentences]), np.cumsum([0, *map(len, lengths)])
    )


def faked_devices(count: int) -> dict[str, str]:
    """The environment of a process for which this machine's CPU is `count` devices."""
    return {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"}


def command(*arguments, **environment: str) -> subprocess.Popen:
    """Starts `bert-jax ...` in a process of its own; it leads a group, so that its workers can be killed with it."""
    if can_be_warm(os.environ | environment):
        return WarmProcess([COMMAND, *arguments], **_ways(environment))
    return command_of_a_shell(*arguments, **environment)


def command_of_a_shell(*arguments, **environment: str) -> subprocess.Popen:
    """`command`, in a Python that is started for it, as users have it: imports take it seconds."""
    return subprocess.Popen([sys.executable, "-m", "bert_jax", *map(str, arguments)], **_ways(environment))


def _ways(environment: dict[str, str]) -> dict[str, Any]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return {"env": os.environ | environment, "start_new_session": True, **pipes}


def program(code: str, *arguments, env: Mapping[str, str] = os.environ, **how) -> subprocess.Popen:
    """Starts Python code in a process of its own, which has imported JAX already; `how` is as for subprocess.Popen."""
    if can_be_warm(env):
        return WarmProcess([code, *arguments], env=env, **how)
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], env=env, **how)
