import json
import os
import subprocess
import sys

import pytest

from bert_jax.products.plan.topology import FAMILIES, parse_topology
from bert_jax.system.errors import UsageError
from bert_jax.training.devices import chip_of


@pytest.mark.parametrize(
    "text, chips, links",
    [
        ("v5e:1x1", 1, 0),
        ("v5e:2x4", 8, 2),
        ("v5e:16x16", 256, 4),
        ("v6e:8x16", 128, 3),
        ("v4:2x2x1", 4, 2),
        ("v4:4x4x4", 64, 6),
        ("v5p:2x4x4", 32, 3),
        ("v5p:8x8x16", 1024, 6),
    ],
)
def test_chips_and_links_follow_from_the_sides(text, chips, links):
    topology = parse_topology(text)
    assert (str(topology), topology.chips, topology.links) == (text, chips, links)


@pytest.mark.parametrize(
    "text, words",
    [
        ("v5e", "a slice of v5e is v5e:AxB, as in v5e:1x1, v5e:2x2"),
        ("v9:2x2", "there are plans for v4, v5e, v5p, v6e"),
        ("4x4", "give FAMILY:SIDExSIDE, as in v5e:4x4"),
        ("v5e-64", "give v5e:8x8"),
        ("v5litepod-16", "give v5e:4x4"),
        ("v4-8", "give v4:2x2x1"),  # four chips of two cores
        ("v5e-48", "one near it, v5e:4x8, v5e:8x8"),
        ("v3-8", "there are plans for v4"),
        ("v5e:0x4", "v5e:AxB"),
        ("v5e:4x4x1", "v5e:AxB, as in v5e:2x4, v5e:4x4, v5e:4x8"),
        ("v4:4x4", "v4:AxBxC, as in v4:2x2x2, v4:2x2x4, v4:2x4x4"),
        ("v5p:64", "v5p:AxBxC, as in v5p:2x4x4, v5p:4x4x4, v5p:4x4x8"),
        ("v5e:3x4", "the first two sides are 1 or even"),
        ("v6e:64x32", "the chips at most 1,024; near it are v6e:8x8, v6e:8x16, v6e:16x16"),
        ("v5e:4×4", "v5e:AxB"),
    ],
)
def test_another_form_is_refused_with_the_right_one_and_what_is_near(text, words):
    with pytest.raises(UsageError) as error:
        parse_topology(text)
    assert words in str(error.value) and f"--topology {text}: " in str(error.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_slice_that_can_be_had_is_understood_and_its_chip_known(family):
    for name in FAMILIES[family].slices:
        chip = parse_topology(f"{family}:{name}").chip
        assert 1e14 < chip.flops < 1e15 and 15e9 < chip.memory < 103e9
        assert 8e11 < chip.memory_bandwidth < 3e12 and chip.link_bandwidth in (50e9, 100e9)


def test_the_longest_name_that_fits_is_the_chips():
    assert chip_of("TPU v5 lite") == chip_of("TPU v5e") != chip_of("TPU v5") == chip_of("TPU v5p")
    assert chip_of("TPU v6 lite podslice") == chip_of("TPU v6e") and chip_of("cpu") is None


DEVICES = """
import json
from bert_jax.products.plan.topology import parse_topology, topology_devices
names = "v4:1x1x1 v4:2x2x1 v4:4x4x4 v5e:1x1 v5e:16x16 v5p:1x1x1 v5p:4x4x4 v6e:1x2 v6e:8x8".split()
found = {name: topology_devices(parse_topology(name)) for name in names}
print(json.dumps({name: [len(devices), devices[0].device_kind] for name, devices in found.items()}))
"""


def test_a_chip_is_one_device_and_nothing_complains():
    pytest.importorskip("libtpu")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_PLATFORMS", "TPU_"))}
    done = subprocess.run([sys.executable, "-c", DEVICES], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stderr == ""
    for name, (devices, kind) in json.loads(done.stdout).items():
        topology = parse_topology(name)
        assert devices == topology.chips and chip_of(kind) == topology.chip, name
