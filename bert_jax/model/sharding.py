"""The device mesh, and the sharding of parameters, optimizer slots and batches."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import KeyPath
from jaxtyping import Int, PyTree

from bert_jax.config.operation import MeshConfig
from bert_jax.model.parameters import parameter_at, path_of
from bert_jax.model.placement import BATCH_AXES
from bert_jax.system.errors import Setting, UsageError

Rows = TypeVar("Rows")
MESH_AXES = (*BATCH_AXES, "tensor")
"""The mesh's axes, fastest-changing last, so that devices that share a tensor lie next to each other."""

AXIS_TABLE: dict[str, tuple[str, ...]] = {
    # tensor first, so that each device has one contiguous part after fsdp is gathered
    "vocabulary": ("tensor", "fsdp"),
    "width": ("fsdp",),
    "heads": ("tensor",),
    "inner": ("tensor",),
    "features": ("tensor",),
}
"""The name of a parameter's axis (model/parameters.py) -> the mesh axes that split it. All other axes are whole on each
device.

`tensor` splits heads and inner features: attention and feed-forward each end with one sum over `tensor` (Megatron-LM,
section 3). The axis of the layers is never split: every device runs every layer. A mesh axis splits only one axis of an
array, the first that names it.
"""


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """`devices` (None: all) as a mesh of `data` x `fsdp` x `tensor`. A size of -1 is computed from the others. Raises
    UsageError if the product of the sizes isn't the number of devices."""
    sizes, all_of_jax = [config.data, config.fsdp, config.tensor], devices is None
    devices = jax.devices() if devices is None else devices
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known and len(devices) % known == 0:
        sizes[sizes.index(-1)] = len(devices) // known
    if min(sizes) < 1 or math.prod(sizes) != len(devices):
        raise UsageError(_wrong_count(config, len(devices), all_of_jax))
    return jax.make_mesh(sizes, MESH_AXES, axis_types=(AxisType.Auto,) * len(sizes), devices=devices)


def _wrong_count(config: MeshConfig, count: int, all_of_jax: bool) -> str:
    """The error for mesh sizes that don't multiply to `count` devices. `all_of_jax`: whether these are all devices that
    JAX finds."""
    sizes = " x ".join(f"{Setting(f'mesh.{axis}', getattr(config, axis))}" for axis in MESH_AXES)
    here = "this machine has" if jax.process_count() == 1 else "this run has"
    owner = here if all_of_jax else "there are"
    devices = f"{owner} {count} device{'' if count == 1 else 's'}"
    return f"{sizes} and {devices}: the product of the three sizes must be this number; a size of -1 is computed"


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Splits rows over `data` and `fsdp`; devices along `tensor` have the same rows."""
    return NamedSharding(mesh, P(BATCH_AXES))


def on_mesh(mesh: Mesh | AbstractMesh, function: Callable) -> Callable:
    """`function` traced with `mesh` in force, so that the model constrains the sharding of its activations
    (`split_by_rows`)."""

    @functools.wraps(function)
    def traced(*arguments):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return function(*arguments)

    return traced


def local_rows(sharding: NamedSharding, batch_size: int) -> Int[np.ndarray, " b"]:
    """Numbers of the batch's rows on devices of this process, in ascending order."""
    indices = sharding.addressable_devices_indices_map((batch_size,)).values()
    return np.unique(np.concatenate([np.arange(batch_size)[index] for index in indices]))


def placed(batch: Rows, sharding: NamedSharding, batch_size: int) -> Rows:
    """Puts a batch, or any tree of arrays with rows first, on the devices; `batch` holds only the `local_rows`."""
    if sharding.is_fully_addressable:
        return jax.device_put(batch, sharding)
    rows = local_rows(sharding, batch_size)

    def whole(local: np.ndarray) -> jax.Array:
        def part(index):
            return local[np.searchsorted(rows, np.arange(batch_size)[index[0]])]

        return jax.make_array_from_callback((batch_size, *local.shape[1:]), sharding, part)

    return jax.tree.map(whole, batch)


def row_shards(mesh: Mesh | AbstractMesh) -> int:
    """Number of parts into which a batch's rows are split."""
    return num_shards(mesh, BATCH_AXES)


def check_batch_size(batch_size: int, accumulation: int, mesh: Mesh | AbstractMesh) -> None:
    """Raises UsageError if a microbatch can't be divided over the devices."""
    shards = row_shards(mesh)
    if batch_size % (accumulation * shards):
        microbatches = f" in {accumulation} microbatches" if accumulation > 1 else ""
        over = (
            f"{shards} devices"
            if shards == mesh.size
            else (f"{Setting('mesh.data')} x {Setting('mesh.fsdp')} = {shards} parts")
        )
        raise UsageError(
            f"a batch of {batch_size}{microbatches} doesn't divide over {over}; "
            f"choose a multiple of {accumulation * shards}"
        )


def num_shards(mesh: Mesh | AbstractMesh, axes: str | tuple[str, ...] | None) -> int:
    """Number of parts of an axis that is split over the mesh axes `axes`."""
    return math.prod(mesh.shape[axis] for axis in ((axes,) if isinstance(axes, str) else axes or ()))


def tree_shardings(params: PyTree, mesh: Mesh | AbstractMesh) -> PyTree:
    """The sharding of every array of `params`, a tree of parameters or of their shapes. Raises UsageError if an axis
    can't be divided over the mesh, ValueError for an array that is no parameter."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: _sharding(path_of(path), leaf.shape, mesh), params)


def _sharding(name: str, shape: tuple[int, ...], mesh: Mesh | AbstractMesh) -> NamedSharding:
    spec = parameter_spec(name)
    for axis, (size, split) in enumerate(zip(shape, spec, strict=True)):
        if size % num_shards(mesh, split):
            axes = (split,) if isinstance(split, str) else split
            devices = " x ".join(
                f"{Setting(f'mesh.{each}', mesh.shape[each])}" for each in axes if mesh.shape[each] > 1
            )
            raise UsageError(f"{name} has {size} rows on axis {axis}, which {devices} doesn't divide; choose another")
    return NamedSharding(mesh, spec)


def on_first_device(tree: PyTree) -> PyTree:
    """The sharding of every array of `tree`, a tree of arrays or of shapes, that puts it whole on this process' first
    device."""
    device = SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(lambda _: device, tree)


def state_shardings(state: PyTree, params: PyTree, mesh: Mesh | AbstractMesh) -> PyTree:
    """The sharding of every array of `state`: of `params` themselves, of an optimizer's slots or of other values.

    An array is split like a parameter if its path ends with the parameter's path and it has the parameter's shape. All
    others are whole on each device: scalars, and statistics of a parameter in another shape. Raises the errors of
    `tree_shardings`.
    """
    leaves = jax.tree_util.tree_leaves_with_path(params)
    shapes = {path_of(path): tuple(leaf.shape) for path, leaf in leaves}

    def sharding(path: KeyPath, leaf: jax.Array | jax.ShapeDtypeStruct) -> NamedSharding:
        names = path_of(path).split("/")
        ends = ("/".join(names[begin:]) for begin in range(len(names)))
        same = next((end for end in ends if shapes.get(end) == tuple(leaf.shape)), None)
        return _sharding(same, leaf.shape, mesh) if same else NamedSharding(mesh, P())

    return jax.tree_util.tree_map_with_path(sharding, state)


def parameter_spec(name: str) -> P:
    """The mesh axes that split each axis of the parameter whose path `name` ends with. Raises ValueError if no
    parameter has it."""
    used_axes: set[str] = set()
    spec = []
    for axis in parameter_at(name).axes:
        split = tuple(each for each in AXIS_TABLE.get(axis, ()) if each not in used_axes)
        used_axes.update(split)
        spec.append(split[0] if len(split) == 1 else split or None)
    return P(*spec)


def abstract(tree: PyTree, shardings: PyTree) -> PyTree:
    """Shapes and types of `tree` with `shardings`, for a restore or a compilation without arrays."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree, shardings
    )
