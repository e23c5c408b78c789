"""Which device holds what: one mesh and one table."""

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Int

from bert_jax.config.operation import MeshConfig
from bert_jax.model.placement import BATCH_AXES
from bert_jax.system.errors import UsageError

Rows = TypeVar("Rows")
MESH_AXES = (*BATCH_AXES, "tensor")
"""The mesh's axes, fastest-changing last: devices that share a tensor lie next to each other."""

_VOCABULARY = ("tensor", "fsdp")
"""Split of the vocabulary's axis. `tensor` first: when `fsdp` is gathered, each device has one stretch of it."""

PARAMETER_TABLE: tuple[tuple[str, P], ...] = (
    (r"bert/embeddings/word", P(_VOCABULARY, None)),
    (r"bert/embeddings/(segment|position)", P(None, "fsdp")),
    # A block's parameters have the layer axis first. It is never split: every device runs every layer. `tensor` splits
    # heads and inner features: one sum over it ends the attention and one the feed-forward (Megatron-LM, section 3).
    (r"bert/encoder/layers/attention/kernel", P(None, "fsdp", None, "tensor", None)),
    (r"bert/encoder/layers/attention/bias", P(None, None, "tensor", None)),
    (r"bert/encoder/layers/attention/output/kernel", P(None, "tensor", None, "fsdp")),
    (r"bert/encoder/layers/feedforward_in/kernel", P(None, "fsdp", "tensor")),
    (r"bert/encoder/layers/feedforward_in/bias", P(None, "tensor")),
    (r"bert/encoder/layers/feedforward_out/kernel", P(None, "tensor", "fsdp")),
    (r"bert/encoder/layers/(attention/output|feedforward_out)/bias", P()),
    (r"(bert/pooler|masked_lm)/dense/kernel", P("fsdp", "tensor")),
    (r"masked_lm/bias", P(_VOCABULARY)),
    (r"(next_sentence|task)/dense/kernel", P("fsdp", None)),
    (r"(bert/pooler|masked_lm|next_sentence|task)/dense/bias", P()),
    (r".*norm/(scale|bias)", P()),
)
"""Path of a parameter -> how it is split. Exactly one row matches each; optimizer slots follow their parameter."""


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """`devices` (all where None) as a mesh of `data` x `fsdp` x `tensor`.

    Raises UsageError where the sizes don't multiply to their number.
    """
    sizes, here = [config.data, config.fsdp, config.tensor], devices is None
    devices = jax.devices() if devices is None else devices
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known and len(devices) % known == 0:
        sizes[sizes.index(-1)] = len(devices) // known
    if min(sizes) < 1 or math.prod(sizes) != len(devices):
        raise UsageError(_other_count(config, len(devices), here))
    return jax.make_mesh(sizes, MESH_AXES, axis_types=(AxisType.Auto,) * len(sizes), devices=devices)


def _other_count(config: MeshConfig, count: int, here: bool) -> str:
    """What is said of a mesh that `count` devices don't make; `here`: those that JAX finds."""
    given = " x ".join(f"mesh.{axis}={getattr(config, axis)}" for axis in MESH_AXES)
    there = "this machine has" if here and jax.process_count() == 1 else "this run has" if here else "there are"
    devices = f"{there} {count} device{'' if count == 1 else 's'}"
    return f"{given} and {devices}: the three must multiply to that; one of them may be -1, which stands for the rest"


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over `data` and `fsdp`; devices along `tensor` have the same ones."""
    return NamedSharding(mesh, P(BATCH_AXES))


def on_mesh(mesh: Mesh, function: Callable) -> Callable:
    """`function` traced with `mesh` in force: the model then says where its activations lie (`split_by_rows`)."""

    @functools.wraps(function)
    def traced(*arguments):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return function(*arguments)

    return traced


def local_rows(sharding: NamedSharding, batch_size: int) -> Int[np.ndarray, " b"]:
    """The rows of a batch that devices of this process hold, in order."""
    indices = sharding.addressable_devices_indices_map((batch_size,)).values()
    return np.unique(np.concatenate([np.arange(batch_size)[index] for index in indices]))


def placed(batch: Rows, sharding: NamedSharding, batch_size: int) -> Rows:
    """A batch, or any tree of arrays with its rows first, on the devices; `batch` has its `local_rows`."""
    if sharding.is_fully_addressable:
        return jax.device_put(batch, sharding)
    rows = local_rows(sharding, batch_size)

    def whole(local: np.ndarray) -> jax.Array:
        part = lambda index: local[np.searchsorted(rows, np.arange(batch_size)[index[0]])]
        return jax.make_array_from_callback((batch_size, *local.shape[1:]), sharding, part)

    return jax.tree.map(whole, batch)


def row_shards(mesh: Mesh | AbstractMesh) -> int:
    """Parts into which a batch's rows are split."""
    return parts(mesh, BATCH_AXES)


def check_batch_size(batch_size: int, accumulation: int, mesh: Mesh | AbstractMesh) -> None:
    """Raises UsageError where a microbatch doesn't divide over the devices."""
    shards = row_shards(mesh)
    if batch_size % (accumulation * shards):
        microbatches = f" in {accumulation} microbatches" if accumulation > 1 else ""
        over = f"{shards} devices" if shards == mesh.size else f"mesh.data x mesh.fsdp = {shards} parts"
        raise UsageError(
            f"a batch of {batch_size}{microbatches} doesn't divide over {over}; "
            f"choose a multiple of {accumulation * shards}"
        )


def parts(mesh: Mesh | AbstractMesh, axes: str | tuple[str, ...] | None) -> int:
    """Parts that a split over `axes` makes."""
    return math.prod(mesh.shape[axis] for axis in ((axes,) if isinstance(axes, str) else axes or ()))


def tree_shardings(tree: Any, mesh: Mesh | AbstractMesh) -> Any:
    """The sharding of every array of `tree`: parameters, or a state that repeats their paths. Scalars are replicated.

    Raises UsageError where an axis doesn't divide by the mesh, ValueError where not exactly one row matches.
    """

    def sharding(path, leaf) -> NamedSharding:
        name = "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)
        spec = parameter_spec(name) if leaf.ndim else P()
        for axis, (size, split) in enumerate(zip(leaf.shape, spec)):
            if size % parts(mesh, split):
                axes = (split,) if isinstance(split, str) else split
                said = " x ".join(f"mesh.{each}={mesh.shape[each]}" for each in axes if mesh.shape[each] > 1)
                raise UsageError(f"{name} has {size} rows on axis {axis}, which {said} doesn't divide; choose another")
        return NamedSharding(mesh, spec)

    return jax.tree_util.tree_map_with_path(sharding, tree)


def parameter_spec(name: str) -> P:
    """The one row of the table that matches a path, or the end of one. Raises ValueError for none or several."""
    found = [spec for pattern, spec in PARAMETER_TABLE if re.search(f"(^|/)({pattern})$", name)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows of the sharding table match the parameter {name}; exactly one must")
    return found[0]


def abstract(tree: Any, shardings: Any) -> Any:
    """Shapes and types of `tree` with `shardings`, for a restore or a compilation without arrays."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree, shardings
    )
