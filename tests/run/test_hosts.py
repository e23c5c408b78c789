"""Real processes with two faked devices each, joined over this machine's network."""

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import command, faked_devices, prepared_copy, program

import bert_jax
from bert_jax.config.operation import HostsConfig
from bert_jax.config.run import RunConfig
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.shards import InstanceSource, shard_path
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run import hosts as hosts_module
from bert_jax.run.checkpoint_manifest import checkpoint_path, delete_checkpoint
from bert_jax.run.hosts import connect
from bert_jax.run.metrics import read_metrics
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system import machine
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.machine import may_be_one_of_several
from bert_jax.training.input import ShuffledOrder

TWO_DEVICES = faked_devices(2)
HEARTBEAT_S = 8
"""Instead of 30: a busy machine must not take a living process for a dead one."""
SOON_NOTICED = {"BERT_JAX_HEARTBEAT_SECONDS": str(HEARTBEAT_S)}

ALONE = {"BERT_JAX_SUPERVISED": "1"}
"""Without the process beside it that says what happened when JAX ends it: that one costs all imports once more."""

RECORDING = """
import sys
from bert_jax.instances.shards import InstanceSource

read, rows = InstanceSource.read, set()
InstanceSource.read = lambda self, numbers: rows.add(len(numbers)) or read(self, numbers)
from bert_jax.cli.main import run

code = run(sys.argv[1:])
print("most rows read at once:", max(rows, default=0))
sys.exit(code)
"""
"""The command, watched: what it reads, and what it opens for writing."""

FAILING = """
import sys
import time

import bert_jax.pretraining.pretrain as pretrain
from bert_jax.system.errors import RunError

late = float(sys.argv.pop())

def fail(*_):
    time.sleep(late)
    raise RunError("the same on all")

pretrain.pretrain_opened = fail
from bert_jax.cli.main import main

main()
"""
"""The command, on data that ends all processes, each at its time."""


FROM_PYTHON = """
import sys

import jax

config, folder, corpus, coordinator, index = sys.argv[1:]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(coordinator, 2, int(index))

import bert_jax
from bert_jax.run.config_files import load_config
from bert_jax.config.run import RunConfig

texts = open(corpus).read().split("\\n\\n")
config = load_config(config, RunConfig)
results = bert_jax.pretrain(config, folder, source=texts, on_measured=lambda step, *_: step == 6)
print(f"ended at {results.steps} of {results.planned_steps}, early {results.stopped_early}")
"""
"""A program that trains on two hosts and ends at a step at which an evaluation is due."""

NO_ROOM = """
import bert_jax.run.checkpoint as checkpoint

def fail(*_):
    raise OSError(28, "No space left on device")

checkpoint.make_complete = fail
from bert_jax.cli.main import main

main()
"""
"""The command, on a disk on which the first process, which alone completes checkpoints, can complete none."""


ONE_OF_ONE = """
import os
import signal
import sys

from bert_jax.config.operation import HostsConfig
from bert_jax.run.hosts import connect

signal.signal(signal.SIGTERM, lambda *_: print("noticed", flush=True))
connect(HostsConfig(coordinator=sys.argv[1], count=1, index=0))
os.kill(os.getpid(), signal.SIGTERM)
"""
"""A program that gets a signal between joining and its first step, as the only process of its run."""


PARTING = """
import os
import sys
import time

from bert_jax.cli.supervision import on_all_hosts
from bert_jax.config.operation import HostsConfig
from bert_jax.run.hosts import is_first

coordinator, index, seconds = sys.argv[1:]
with on_all_hosts(HostsConfig(coordinator=coordinator, count=2, index=int(index))):
    first = is_first()
if first:
    time.sleep(float(seconds))
print("first" if first else "other", flush=True)
os._exit(0)
"""
"""A program whose first process goes on alone for some seconds after the work of all."""


PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
TOGETHER = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
ENDLESS = ["--phases.0.steps", 100_000, "--checkpoints.every", 100_000, "--evaluation.every", 100_000]


def hosts():
    """Flags of each of two processes, which have a coordinator of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    return [["--hosts.coordinator", coordinator, "--hosts.count", "2", "--hosts.index", str(i)] for i in range(2)]


def ended(processes, timeout=200):
    """The exit codes of processes, and all that they said: an output each, or both if there are two pipes."""
    outputs = [process.communicate(timeout=timeout) for process in processes]
    return [process.returncode for process in processes], [out if err is None else (out, err) for out, err in outputs]


@pytest.fixture
def run(untrained):
    """A run directory with everything prepared and no step done."""
    return untrained.path


def same_lines(found, expected):
    """Whether these are the first lines of the other measurements."""
    expected = expected[: len(found)]
    assert [(line["step"], line["split"]) for line in found] == [(line["step"], line["split"]) for line in expected]
    return [line["loss"] for line in found] == pytest.approx([line["loss"] for line in expected], rel=1e-5)


@pytest.mark.long
def test_two_hosts_that_share_a_bucket_do_the_run_of_one_and_one_goes_on(
    bucket_server, bucket, tiny_run, tiny_config, config_file, tmp_path, capsys
):
    """The first prepares the data; each copies it to its own disk; both write their part of each checkpoint.

    Over data and fsdp: parameters and batches both lie on both. Another number of hosts goes on from step 8.
    """
    line = ["pretrain", config_file, "--workdir", bucket, "--mesh.fsdp", 2, "--checkpoints.every", 8]
    machines = [os.environ | ALONE | TWO_DEVICES | {"XDG_CACHE_HOME": str(tmp_path / f"{index}")} for index in range(2)]
    processes = [program(RECORDING, *line, *flags, env=of, **PIPES) for flags, of in zip(hosts(), machines)]
    codes, outputs = ended(processes, timeout=300)
    assert codes == [0, 0], outputs
    assert all("most rows read at once: 4" in output for output, _ in outputs)  # half of a batch
    assert "held out" in outputs[0][1]
    assert all("google_auth_provider" in line for line in outputs[1][1].splitlines())  # a library's; nothing is ours
    assert all(len(list((tmp_path / f"{index}").rglob("train-*.array_record"))) > 1 for index in range(2))
    there, expected = RunDirectory(bucket), read_metrics(tiny_run.metrics_file)
    found = read_metrics(there.metrics_file)
    assert len(found) == len(expected) and same_lines(found, expected)
    assert json.loads(there.results_file.read_text())["steps"] == 12
    assert bert_jax.load(bucket).fill_mask("The [MASK].")
    delete_checkpoint(checkpoint_path(there.checkpoints, 12))
    capsys.readouterr()
    pretrain(tiny_config, there)
    assert "going on from step 8" in capsys.readouterr().err
    found = read_metrics(there.metrics_file)
    assert len(found) == len(expected) and same_lines(found, expected)


@pytest.mark.long
def test_a_program_stops_all_hosts_after_the_same_step(corpus, config_file, tmp_path):
    """The first process alone is asked, and the evaluation of that step is done."""
    coordinator = hosts()[0][1]
    line = [config_file, tmp_path / "run", corpus, coordinator]
    processes = [program(FROM_PYTHON, *line, index, env=os.environ | TWO_DEVICES, **PIPES) for index in range(2)]
    codes, outputs = ended(processes)
    assert codes == [0, 0], outputs
    ends = {output.splitlines()[-1] for output, _ in outputs}  # after those of Gloo
    assert len(ends) == 1 and re.fullmatch(r"ended at ([6-9]|10|11) of 12, early True", ends.pop()), outputs
    found = [(line["step"], line["split"]) for line in read_metrics(tmp_path / "run/metrics.jsonl")]
    assert (6, "train") in found and (6, "eval") in found


@pytest.mark.long
def test_where_one_host_dies_the_other_says_so_and_ends(config_file, tiny_run, tmp_path):
    """Either of them. While the first survivor waits for its host, another pair begins."""
    survivors = []
    for victim in range(2):
        run = prepared_copy(tiny_run, tmp_path / str(victim)).path
        line = ["pretrain", config_file, "--workdir", run, *ENDLESS]
        processes = [command(*line, *flags, **TWO_DEVICES | SOON_NOTICED) for flags in hosts()]
        wait_for(run / "metrics.jsonl", processes, lambda path: path.stat().st_size)
        os.killpg(processes[victim].pid, signal.SIGKILL)
        survivors.append(processes[1 - victim])
    for survivor in survivors:
        output, _ = survivor.communicate(timeout=HEARTBEAT_S + 30)
        assert survivor.returncode == 134
        assert "bert-jax: another host of this run was lost or didn't come" in output
        assert "start the command again on all hosts" in output.replace("\n", " ")
        assert re.search(r"while this one was \w+ step [\d,]+ of 100,000 .Training.;", output), output


@pytest.mark.long
def test_a_signal_to_one_stops_all_with_a_checkpoint(config_file, run):
    """Meanwhile both hosts skip, and the first counts, damaged data."""
    skipped = damage_a_shard(run)
    line = ["pretrain", config_file, "--workdir", run, *ENDLESS, "--input.damaged-records", "skip"]
    processes = [command(*line, *flags, **TWO_DEVICES) for flags in hosts()]
    wait_for(run / "metrics.jsonl", processes, lambda path: path.stat().st_size)
    processes[1].terminate()
    codes, outputs = ended(processes)
    assert codes == [143, 143], outputs
    assert len(list((run / "checkpoints").glob("*/manifest.json"))) == 1
    assert read_metrics(run / "metrics.jsonl")[0]["skipped_records"] == skipped > 0


@pytest.mark.long
def test_what_ends_all_hosts_is_no_loss_of_one(config_file, run):
    """However long after the first, with which JAX' coordinator goes, the second gets there."""
    line = ["pretrain", config_file, "--workdir", run]
    how = {"env": os.environ | ALONE, **TOGETHER}
    codes, outputs = ended([program(FAILING, *line, *flags, late, **how) for flags, late in zip(hosts(), ("0", "3"))])
    assert codes == [1, 1], outputs


@pytest.mark.long
def test_a_first_host_that_still_writes_its_report_needs_no_others():
    coordinator = hosts()[0][1]
    environment = os.environ | ALONE | {"BERT_JAX_HEARTBEAT_SECONDS": "2"}
    codes, outputs = ended([program(PARTING, coordinator, n, 10, env=environment, **TOGETHER) for n in range(2)])
    assert codes == [0, 0], outputs
    assert [output.split()[-1] for output in outputs] == ["first", "other"]


@pytest.mark.long
def test_hosts_with_other_settings_than_the_first_end_all(config_file, run):
    """Before anything is written."""
    line = ["pretrain", config_file, "--workdir", run]
    others = [[], ["--optimizer.peak-learning-rate", "0.02", "--checkpoints.every", "5"]]
    environment = TWO_DEVICES | ALONE
    codes, said = ended([command(*line, *flags, *other, **environment) for flags, other in zip(hosts(), others)])
    first, second = (output.replace("\n", " ") for output in said)
    assert codes == [2, 2] and "another host of this run has other settings than this one" in first, said
    assert "--optimizer.peak-learning-rate is 0.002 there and 0.02 now" in second
    assert "--checkpoints.every is 4 there and 5 now" in second and "--hosts" not in second
    assert not (run / "config.json").exists()


@pytest.mark.parametrize("what", ["checkpoint", "start"])
@pytest.mark.long
def test_what_fails_on_the_first_host_alone_is_a_failure_of_all(config_file, tiny_run, run, what):
    """And no loss of a host, after which launchers start all of them again. Until then the run is that of one host."""
    line = ["pretrain", config_file, "--workdir", run, "--checkpoints.every", 12]
    with open(run / ".lock", "a+") as lock:
        if what == "start":
            fcntl.flock(lock, fcntl.LOCK_EX)
        how = {"env": os.environ | TWO_DEVICES | ALONE, **TOGETHER}
        codes, said = ended([program(NO_ROOM, *line, *flags, **how) for flags in hosts()])
    first, second = (output.replace("\n", " ") for output in said)
    if what == "start":
        assert codes == [2, 1], said
        assert "another process is working on" in first and "the first host of this run failed" in second
    else:
        assert codes == [1, 1], said
        assert "checkpoint 12 could not be written" in first and "by another host of this run" in second
        found = read_metrics(run / "metrics.jsonl")
        assert found[-1]["step"] == 12 and same_lines(found, read_metrics(tiny_run.metrics_file))


def damage_a_shard(run):
    """Destroys the first one; how many of the first three steps' records were in it."""
    instances = InstanceSource(PreparedData.unchecked(run / "data" / "length-32"), "train")
    shard, order = shard_path(instances.directory, "train", 0), ShuffledOrder(len(instances), RunConfig().seed, 0)
    shard.write_bytes(bytes(shard.stat().st_size))
    return sum(order.record(ordinal) < instances._starts[1] for ordinal in range(3 * 8))


def wait_for(path, processes, there=lambda path: True):
    """Until `path` is there. The processes are killed if that takes too long, or one of them ends before."""
    deadline = time.monotonic() + 240
    while not (path.exists() and there(path)):
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            pytest.fail("\n".join(process.communicate()[0] for process in processes))
        time.sleep(0.05)


@pytest.fixture
def on_two_hosts(monkeypatch):
    """Does work on two threads that take themselves for the first and the second host of a run."""
    barrier, agreed = threading.Barrier(2), {}
    host = lambda: threading.current_thread().name

    def agree(number):
        agreed[host()] = number
        barrier.wait(60)
        return agreed["first"]

    def do(work):
        threads = [threading.Thread(target=work, args=(name,), name=name) for name in ("second", "first")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    monkeypatch.setattr(hosts_module, "is_first", lambda: host() == "first")
    monkeypatch.setattr(hosts_module, "wait_for_all", lambda name: barrier.wait(60))
    monkeypatch.setattr(hosts_module, "agreed", agree)
    return do


def test_all_go_on_together_from_what_the_first_did_alone(on_two_hosts):
    """The first one too, once the last of them has seen it: a collective would not wait that long."""
    order = []

    def work(name):
        with hosts_module.first_alone("work"):
            if name == "second":
                time.sleep(0.2)  # while the first might leave
            order.append(f"{name} does it")
        order.append("leaves")

    on_two_hosts(work)
    assert order == ["first does it", "second does it", "leaves", "leaves"]


@pytest.mark.parametrize("error", [UsageError("no text"), OSError("no space"), ValueError("a fault of the code")])
def test_no_host_waits_for_a_first_one_that_failed(on_two_hosts, error):
    """Whatever it failed of."""
    raised = {}

    def work(name):
        try:
            with hosts_module.first_alone("work"):
                raise error
        except Exception as found:
            raised[name] = type(found)

    on_two_hosts(work)
    assert raised == {"first": type(error), "second": RunError}


def test_no_name_of_a_barrier_is_used_twice(monkeypatch):
    """Of several runs in a row either, as of several seeds; hosts may see a run's directory by different paths."""
    names = []
    monkeypatch.setattr(hosts_module.multihost, "sync_global_processes", lambda name, **_: names.append(name))
    for _ in range(2):
        with hosts_module.first_alone("prepare"):
            pass
    assert len(set(names)) == len(names) == 4


@pytest.mark.long
def test_a_coordinator_that_nobody_is_behind_ends_the_wait(config_file, tmp_path):
    process = command("pretrain", config_file, "--workdir", tmp_path / "run", *hosts()[1], "--hosts.wait-seconds", 1)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 134, output
    assert "bert-jax: another host of this run was lost or didn't come" in output
    assert not (tmp_path / "run").exists()


def test_a_signal_before_the_first_step_reaches_a_process_that_is_the_only_one():
    """As on a TPU of one machine: JAX handles SIGTERM from the joining on, and only several processes ask it."""
    process = program(ONE_OF_ONE, hosts()[0][1], env=os.environ, **TOGETHER)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "noticed" in output, output


def no_others(**_):
    raise ValueError("coordinator_address should be defined.")


def test_alone_slurm_and_tpus_are_told_apart(monkeypatch):
    monkeypatch.setattr(machine, "has_tpu", lambda: False)
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS", raising=False)
    assert not may_be_one_of_several(None)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert not may_be_one_of_several(None)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert may_be_one_of_several(None)
    monkeypatch.setattr(hosts_module.jax.distributed, "initialize", no_others)
    with pytest.raises(UsageError, match="can't be joined .coordinator_address should be defined"):
        connect(HostsConfig())
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS")
    monkeypatch.setattr(machine, "has_tpu", lambda: True)
    assert may_be_one_of_several(None)
    connect(HostsConfig())  # a TPU without a cluster works alone


@pytest.mark.parametrize(
    "names, message, is_alone",
    [
        (None, "Getting metadata['agent-worker-number'] failed for 6 tries", False),
        ("10.0.0.1,10.0.0.2", "coordinator_address should be defined.", False),
        ("localhost", "Failed to recognize coordinator address localhost", True),
    ],
)
def test_a_machine_of_a_slice_never_trains_alone(monkeypatch, names, message, is_alone):
    def fail(**_):
        raise RuntimeError(message)

    monkeypatch.delenv("SLURM_STEP_NUM_TASKS", raising=False)
    monkeypatch.delenv("TPU_PROCESS_ADDRESSES", raising=False)
    monkeypatch.delenv("TPU_WORKER_HOSTNAMES", raising=False)
    if names:
        monkeypatch.setenv("TPU_WORKER_HOSTNAMES", names)
    monkeypatch.setattr(hosts_module.jax.distributed, "initialize", fail)
    if is_alone:
        connect(HostsConfig())
    else:
        with pytest.raises(UsageError, match="the hosts of this run can't be joined"):
            connect(HostsConfig())
