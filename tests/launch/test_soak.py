import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

KINDS = ("kill", "terminate", "pause", "full_disk", "slow_disk", "damaged_checkpoint", "damaged_data")
SHORT = {"SOAK_SECONDS": "1", "PAUSE_SECONDS": "0", "PATIENCE_SECONDS": "60", "DISK_MEGABYTES": "2"}


@pytest.fixture
def soak(place):
    """Runs launch/soak.sh on a stand-in of the run; `flaw` is one of tests/launch/trainer.py."""

    def run(faults, flaw=None, **environment):
        place.set("trainer", sys.executable)
        if flaw:
            place.set("flaw", flaw)
        place.environment["PATH"] += ":/usr/sbin:/sbin"
        code, said = place.run("soak.sh", patience=300, FAULTS=faults, **SHORT | environment)
        if "disk" in faults and "No disk can be mounted here" in said:
            pytest.skip("only root may mount a disk")
        return code, said

    yield run
    mounted = subprocess.run(["mountpoint", "-q", place.project / "runs/soak/disk"])
    assert mounted.returncode, "a disk was left behind"


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_is_thrown_and_survived(soak, kind):
    code, said = soak(kind)
    assert code == 0, said
    [(name, thrown, survived)] = re.findall(r"(\w+) +thrown +(\d+) +survived +(\d+)", said)
    assert name == kind and int(thrown) == int(survived) > 0
    assert re.search(r"measurements up to step \d+: [1-9]\d*, of which differ: 0", said)


@pytest.mark.parametrize(
    "fault, flaw, words",
    [
        ("kill", "forgets", r"of which differ: [1-9]"),
        ("full_disk", "dies", "full_disk lost"),
        ("damaged_data", "ignorant", "damaged_data lost"),
    ],
)
def test_what_is_not_survived_is_found(soak, fault, flaw, words):
    patience = "3" if flaw == "ignorant" else "60"
    code, said = soak(fault, flaw, PATIENCE_SECONDS=patience)
    assert code == 1 and re.search(words, said) and "The soak failed" in said, said


def test_a_directory_that_holds_something_else_is_not_deleted(soak, tmp_path):
    (tmp_path / "home" / "disk").mkdir(parents=True)
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    code, said = soak("kill", SOAK_DIRECTORY=str(tmp_path / "home"))
    assert code == 2 and "holds something else than a soak" in said and (tmp_path / "home" / "thesis.txt").exists()


def test_an_unknown_fault_is_one_line(soak):
    code, said = soak("kill earthquake")
    assert (code, said.count("\n")) == (2, 1) and "earthquake, which is none of: kill" in said
