import time

import pytest

RUN = "<pretrain><config.py><--workdir><runs/a b>"
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}


@pytest.fixture
def machine(place):
    place.set("gpus", 4)
    place.set("job", "RUNNING")
    return place


def launch(machine, code=0, **environment) -> str:
    """What launch/gpu.sh prints. It must end by this exit code."""
    ended, said = machine.run("gpu.sh", "config.py", "--workdir", "runs/a b", **environment)
    assert ended == code, said
    return said


def test_one_process_for_all_gpus(machine):
    launch(machine, XLA_FLAGS="--mine")
    (run,) = machine.lines("runs")
    assert run.startswith(f"{RUN} ")
    assert " XLA_FLAGS=--mine " in run
    assert run.endswith("JAX_LOCAL_DEVICE_IDS=")
    assert machine.lines("calls")[0].endswith(".[cuda]")


def test_goes_on_after_a_checkpoint_a_kill_the_loss_of_another_host_and_when_it_got_stuck(machine):
    machine.set("codes", 143, 137, 134, 124)
    launch(machine)
    assert len(machine.lines("runs")) == 5


@pytest.mark.parametrize("code", [1, 2, 130, 139])
def test_a_failure_ends_it(machine, code):
    machine.set("codes", code)
    launch(machine, code=code)
    assert len(machine.lines("runs")) == 1


def test_restarts_are_limited(machine):
    machine.set("codes", 137, 137, 137)
    said = launch(machine, RESTARTS="1", code=137)
    assert "killed once more (exit code 137) after 1 restarts: giving up" in said
    assert len(machine.lines("runs")) == 2


def test_a_signal_to_the_launcher_ends_the_run_and_is_no_reason_to_start_again(machine):
    machine.set("codes", "wait")
    with machine.start("gpu.sh", "config.py", "--workdir", "runs/a b") as process:
        while not machine.lines("runs"):
            time.sleep(0.02)
        process.terminate()
        assert process.wait(timeout=10) == 143
        assert machine.lines("runs")[1:] == ["checkpoint"]


def test_a_slurm_job_has_one_process_a_node_with_all_its_gpus(machine):
    launch(machine, **JOB)
    runs = machine.lines("runs")
    assert [run.split()[0:2] for run in runs] == [f"{RUN} ".split()] * 2
    assert all(run.endswith("JAX_LOCAL_DEVICE_IDS=0,1,2,3") for run in runs)
    assert sum("pip install" in call for call in machine.lines("calls")) == 1


def test_slurm_may_lend_some_of_the_gpus(machine):
    launch(machine, **JOB, CUDA_VISIBLE_DEVICES="2,3")
    assert all(run.endswith("JAX_LOCAL_DEVICE_IDS=0,1") for run in machine.lines("runs"))


STOPPED = "stopped after a checkpoint (exit code 143); queueing job 7 again"
GIVING_UP = "killed once more (exit code 137) after 3 restarts: giving up"


@pytest.mark.parametrize(
    "codes, restarts, job, code, words",
    [
        ((143, 143), "0", "RUNNING", 143, STOPPED),
        ((143, 143), "0", "CANCELLED", 143, ""),
        ((137, 137), "2", "RUNNING", 137, "queueing job 7 again"),
        ((137, 137), "3", "RUNNING", 137, GIVING_UP),
        ((0, 1), "0", "RUNNING", 1, ""),
        ((0, 2), "0", "RUNNING", 2, ""),
        ((1, 134), "0", "RUNNING", 1, ""),
        ((134, 2), "0", "RUNNING", 2, ""),
    ],
)
def test_a_job_is_queued_again_unless_it_was_cancelled_or_failed_or_began_too_often(
    machine, codes, restarts, job, code, words
):
    """A failed job isn't, even where the processes that lost the failed one end with a higher code."""
    machine.set("codes", *codes)
    machine.set("job", job)
    said = launch(machine, **JOB, RESTARTS="3", SLURM_RESTART_COUNT=restarts, code=code)
    assert words in said and ("queueing" in said) == ("queueing" in words)
    asked = [call for call in machine.lines("calls") if "scontrol" in call]
    assert ("scontrol requeue 7" in asked[-1:]) == ("queueing" in words) and (not asked or code > 2)


def test_sbatch_runs_a_copy_from_elsewhere(machine):
    copy = machine.world / "slurm_script"
    copy.write_bytes((machine.project / "launch/gpu.sh").read_bytes())
    code, said = machine.run(str(copy), "config.py", **JOB, SLURM_SUBMIT_DIR=str(machine.project))
    assert code == 0, said
    assert len(machine.lines("runs")) == 2
    code, said = machine.run(str(copy), "config.py", **JOB, SLURM_SUBMIT_DIR=str(machine.world))
    assert (code, said.count("\n")) == (2, 1)
    assert "isn't the project's directory" in said


def test_no_gpu_is_said(machine):
    machine.set("gpus", 0)
    said = launch(machine, code=2)
    assert "There is no NVIDIA GPU on " in said
    assert not machine.lines("runs")


def test_usage(machine):
    code, said = machine.run("gpu.sh")
    assert (code, said.startswith("usage: launch/gpu.sh CONFIG"), said.count("\n")) == (2, True, 1)
