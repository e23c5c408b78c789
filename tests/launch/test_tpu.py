import fcntl
import time

import pytest

RUN = "<pretrain><config.py><--workdir><gs://bucket/run>"


@pytest.fixture
def cloud(place):
    """A cloud that gives two workers to who asks, after some waiting."""
    place.environment |= {
        "TPU_NAME": "bert",
        "ZONE": "us-west4-a",
        "ACCELERATOR_TYPE": "v5litepod-8",
        "RUNTIME_VERSION": "v2-alpha-tpuv5-lite",
    }
    place.set("coming", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE")
    for worker in ("worker0", "worker1"):
        (place.world / worker).mkdir()
    return place


def launch(cloud, *arguments, code=0, **environment) -> str:
    """What launch/tpu.sh prints. It must end by this exit code."""
    ended, said = cloud.run("tpu.sh", "config.py", "--workdir", "gs://bucket/run", *arguments, **environment)
    assert ended == code, said
    return said


def called(cloud, word: str) -> list[str]:
    return [call for call in cloud.lines("calls") if word in call]


def until(condition) -> None:
    """Waits for something that happens in another process."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_creates_sets_up_runs_and_prints_the_first_workers_log(cloud):
    said = launch(cloud)
    (create,) = called(cloud, "create")
    assert create == (
        "gcloud compute tpus queued-resources create --zone=us-west4-a --quiet bert --node-id=bert "
        "--accelerator-type=v5litepod-8 --runtime-version=v2-alpha-tpuv5-lite"
    )
    assert len(called(cloud, " scp ")) == 1
    assert [call.split()[-1] for call in called(cloud, "pip install")] == [".[tpu,gcs]"] * 2
    for worker in ("worker0", "worker1"):
        (run,) = cloud.lines(f"{worker}/runs")
        assert run.startswith(f"{RUN} LIBTPU_INIT_ARGS=--xla_enable_async_all_reduce=true ")
        assert " JAX_PLATFORMS=tpu,cpu " in run  # a TPU that can't be used is an error
    assert "step 1 of worker0" in said
    assert "step 1 of worker1" not in said
    assert said.count("bert is WAITING_FOR_RESOURCES") == 1


def test_spot_project_and_other_flags(cloud):
    cloud.environment |= {"SPOT": "1", "PROJECT": "mine", "CREATE_FLAGS": "--reserved --service-account=me"}
    launch(cloud, SSH_FLAGS="--internal-ip")
    (create,) = called(cloud, "create")
    assert create.endswith(" --reserved --service-account=me --spot")
    assert all("--project=mine" in call for call in called(cloud, "gcloud"))
    assert all("--internal-ip" in call for call in called(cloud, "tpu-vm"))


@pytest.mark.parametrize(
    "states, words",
    [
        ({"coming": ["PROVISIONING", "FAILED"]}, ["FAILED"]),
        ({"coming": ["PROVISIONING", "SUSPENDED"]}, ["SUSPENDED"]),
        ({"coming": ["PROVISIONING", "DELETING"]}, ["is being deleted"]),
        ({"states": ["DENIED"]}, ["PERMISSION_DENIED: Log in.", "bert can't be looked up"]),
    ],
)
def test_gives_up_on_what_wont_come_or_cant_be_looked_up(cloud, states, words):
    for name, lines in states.items():
        cloud.set(name, *lines)
    said = launch(cloud, code=1)
    for word in words:
        assert word in said
    assert len(said.splitlines()) <= 4
    assert not called(cloud, "tpu-vm")


def test_a_look_up_that_fails_later_is_repeated(cloud):
    cloud.set("coming", "PROVISIONING", "ACTIVE", "DENIED", "DENIED", "ACTIVE")
    cloud.set("worker0/codes", 143)
    said = launch(cloud)
    assert said.count("Log in.") == 2
    assert len(called(cloud, "create")) == 1


def test_a_creation_that_fails_is_tried_again_after_a_preemption_alone(cloud):
    cloud.set("refusals", 1)
    said = launch(cloud, SPOT="1", code=1)
    assert "RESOURCE_EXHAUSTED" in said
    assert "bert can't be created" in said
    cloud.set("states", "SUSPENDED")
    cloud.set("refusals", 1)
    launch(cloud, SPOT="1")
    assert len(called(cloud, "create")) == 3


WORLDS = {
    "a machine that is there": ({"states": ["ACTIVE"]}, "", 0, 0, 1),
    "a checkpoint and a kill": ({"worker0/codes": [143, 134], "worker1/codes": [143, 137]}, "", 0, 1, 3),
    "a bucket out of reach": ({"worker0/codes": [75], "worker1/codes": [75]}, "", 0, 1, 2),
    "a failure": ({"worker1/codes": [1]}, "", 1, 1, 1),
    "wrong use": ({"worker1/codes": [2]}, "", 2, 1, 1),
    "a set-up that fails after a restart": ({"breaks": ["scp 1 SUSPENDED", "setup 1"]}, "1", 0, 2, 1),
    "a set-up that fails at the start": ({"breaks": ["setup 1"]}, "", 1, 1, 0),
    "a run that fails as its machine goes": ({"coming": ["ACTIVE", "SUSPENDED"], "worker0/codes": [1]}, "1", 0, 2, 1),
    **{
        f"a machine that is lost at {step}": ({"breaks": [f"{step} 1 SUSPENDED"]}, "1", 0, 2, 1)
        for step in ("scp", "setup", "start", "end")
    },
}
"""What the world holds, whether the machine is a spot one, the exit code, and how many machines and runs are begun; the
disk of a machine that is lost goes with it."""


@pytest.mark.parametrize("what", WORLDS)
def test_machines_and_runs_are_begun_as_often_as_needed(cloud, what):
    world, spot, code, machines, runs = WORLDS[what]
    for name, lines in world.items():
        cloud.set(name, *lines)
    launch(cloud, SPOT=spot, code=code)
    assert len(called(cloud, "create")) == machines
    assert len(cloud.lines("worker0/runs")) == len(cloud.lines("worker1/runs")) == runs


@pytest.mark.parametrize("state", ["SUSPENDED", "ABSENT"])
def test_a_lost_machine_is_replaced(cloud, state):
    cloud.set("breaks", f"follow 255 {state}")
    launch(cloud, SPOT="1")
    assert len(called(cloud, "create")) == 2
    assert [call.split()[-2:] for call in called(cloud, "delete")] == [["bert", "--force"]] * (state == "SUSPENDED")
    assert len(cloud.lines("worker0/runs")) == 1  # the disk of the first went with it


@pytest.mark.parametrize("state", ["SUSPENDED", "DELETING"])
def test_a_deletion_that_fails_is_tried_again(cloud, state):
    cloud.set("breaks", "follow 255 SUSPENDED")
    cloud.set("delete_refusals", state)
    if state == "DELETING":
        with cloud.start("tpu.sh", "config.py", "--workdir", "gs://bucket/run", SPOT="1") as launched:
            until(lambda: cloud.lines("states") == ["DELETING"])
            (cloud.world / "states").unlink()  # gcloud has given up waiting, and the deletion has gone on
            said = launched.communicate(timeout=60)[0]
        assert launched.returncode == 0, said
    else:
        said = launch(cloud, SPOT="1")
    assert "bert can't be deleted; above is what gcloud says" in said
    assert len(called(cloud, "delete")) == (1 if state == "DELETING" else 2) and len(called(cloud, "create")) == 2


def test_setting_up_waits_for_an_earlier_call_that_still_does(cloud):
    with open(cloud.project / "launch/setup.sh", "a") as setting_up:
        fcntl.flock(setting_up, fcntl.LOCK_EX)
        with cloud.start("tpu_worker.sh", "setup") as worker:
            time.sleep(0.5)
            assert not called(cloud, "pip install")
            fcntl.flock(setting_up, fcntl.LOCK_UN)
            said = worker.communicate(timeout=60)[0]
    assert worker.returncode == 0 and called(cloud, "pip install"), said


def test_a_broken_connection_leaves_the_run_alone(cloud):
    cloud.set("breaks", "follow 255")
    launch(cloud)
    assert len(called(cloud, "create")) == 1


def test_a_second_call_attaches_and_stop_ends_both(cloud):
    for worker in ("worker0", "worker1"):
        cloud.set(f"{worker}/codes", "wait")
    with cloud.start("tpu.sh", "config.py", "--workdir", "gs://bucket/run") as first:
        until(lambda: any("follow" in call for call in cloud.lines("calls")))
        with cloud.start("tpu.sh", "config.py", "--workdir", "gs://bucket/run") as second:
            until(lambda: len(called(cloud, "follow")) == 2 and cloud.lines("worker0/runs"))
            code, said = cloud.run("tpu.sh", "stop")
            assert (code, said.split()) == (0, ["stopped"] * 2)
            said = second.communicate(timeout=10)[0]
        first.communicate(timeout=10)
    assert "The run is under way on bert" in said
    assert (first.returncode, second.returncode) == (143, 143)
    assert cloud.lines("worker0/runs")[1:] == ["checkpoint"]


def test_the_run_goes_on_without_the_script(cloud):
    cloud.set("worker0/codes", "wait")
    cloud.set("worker1/codes", "wait")
    with cloud.start("tpu.sh", "config.py", "--workdir", "gs://bucket/run") as first:
        until(lambda: called(cloud, "follow"))
        first.kill()
    worker = cloud.world / "worker0/bert_jax/launch/tpu_worker.sh"
    assert cloud.run(str(worker), "state")[1] == "running\n"
    assert cloud.run("tpu.sh", "delete")[0] == 0
    assert called(cloud, "worker.sh stop")
    assert cloud.lines("calls")[-1].endswith("queued-resources delete --zone=us-west4-a --quiet bert --force")


def test_what_is_left_of_a_run_is_killed_before_the_next(cloud):
    cloud.set("worker0/codes", "wait")
    cloud.set("worker1/codes", 137)
    with cloud.start("tpu.sh", "config.py", "--workdir", "gs://bucket/run") as first:
        until(lambda: called(cloud, "follow"))
        first.kill()
    launch(cloud)
    assert len(cloud.lines("worker0/runs")) == len(cloud.lines("worker1/runs")) == 2


def test_arguments_arrive_as_they_are(cloud):
    arguments = ["--data.source", "text:my corpus/*.txt", 'it\'s "$HOME"; exit 1']
    launch(cloud, *arguments)
    (run,) = cloud.lines("worker1/runs")
    assert run.startswith(RUN + "".join(f"<{argument}>" for argument in arguments))


@pytest.mark.parametrize("what", ["old_python", "bare_python"])
def test_brings_a_python_where_there_is_none_to_use(cloud, what):
    cloud.set(what)
    launch(cloud)
    assert len(called(cloud, "--target .uv uv")) == 2
    assert len(cloud.lines("worker0/runs")) == 1


@pytest.mark.parametrize("name", ["TPU_NAME", "ZONE", "ACCELERATOR_TYPE", "RUNTIME_VERSION"])
def test_says_what_to_set(cloud, name):
    del cloud.environment[name]
    said = launch(cloud, code=2)
    assert said.splitlines()[-1].startswith(f"{name} isn't set: ")
    assert not called(cloud, "create")


@pytest.mark.parametrize("config", ["mine", "mine/recipe", "configs/mine/recipe"])
def test_a_config_by_its_name(cloud, config):
    (cloud.project / "configs").mkdir(exist_ok=True)
    (cloud.project / "configs/mine.py").touch()
    code, said = cloud.run("tpu.sh", config, "--workdir", "gs://bucket/run")
    assert code == 0, said


@pytest.mark.parametrize("config", ["missing.py", "/somewhere/config.py", "runs/base"])
def test_a_config_that_the_workers_dont_get(cloud, config):
    (cloud.project / "runs/base").mkdir(parents=True)
    code, said = cloud.run("tpu.sh", config, "--workdir", "gs://bucket/run")
    assert (code, said.startswith(f"{config} isn't what the workers get: "), said.count("\n")) == (2, True, 1)
    assert not cloud.lines("calls")


@pytest.mark.parametrize("arguments", [(), ("--workdir", "x"), ("config.py",)])
def test_usage(cloud, arguments):
    code, said = cloud.run("tpu.sh", *arguments)
    assert (code, said.startswith("usage: launch/tpu.sh CONFIG"), said.count("\n")) == (2, True, 1)


def test_stop_and_delete_without_a_run(cloud):
    code, said = cloud.run("tpu.sh", "stop")
    assert (code, said) == (0, "There is no run on bert\n")
    cloud.set("states", "ACTIVE")
    assert cloud.run("tpu.sh", "stop")[1] == "There is no run on bert\n"
    assert cloud.run("tpu.sh", "delete")[0] == 0
    assert not cloud.lines("states")
    assert cloud.run("tpu.sh", "delete") == (0, "There is no run on bert\nThere is no bert\n")
