"""Which device holds what: one mesh and one table."""

import math
import re
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.config.operation import MeshConfig
from bert_jax.system.errors import UsageError

BATCH_AXES = ("data", "fsdp")
"""Mesh axes over which a batch's rows are split."""

PARAMETER_TABLE: tuple[tuple[str, P], ...] = (
    (r"bert/embeddings/word", P("fsdp", None)),
    (r"bert/embeddings/(segment|position)", P(None, "fsdp")),
    # A block's parameters have the layer axis first. It is never split: every device runs every layer.
    (r"bert/encoder/layers/attention/kernel", P(None, "fsdp", None, None, None)),
    (r"bert/encoder/layers/attention/bias", P()),
    (r"bert/encoder/layers/attention/output/kernel", P(None, None, None, "fsdp")),
    (r"bert/encoder/layers/feedforward_in/kernel", P(None, "fsdp", None)),
    (r"bert/encoder/layers/feedforward_out/kernel", P(None, None, "fsdp")),
    (r"bert/encoder/layers/(attention/output|feedforward_in|feedforward_out)/bias", P()),
    (r"bert/pooler/dense/kernel", P("fsdp", None)),
    (r"masked_lm/dense/kernel", P("fsdp", None)),
    (r"masked_lm/bias", P("fsdp")),
    (r"next_sentence/dense/kernel", P("fsdp", None)),
    (r"(bert/pooler|masked_lm|next_sentence)/dense/bias", P()),
    (r".*norm/(scale|bias)", P()),
)
"""Path of a parameter -> how it is split. Exactly one row matches each; optimizer slots follow their parameter."""


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """`devices`, or all that there are, as a mesh of `data` x `fsdp`.

    Raises UsageError where the sizes don't multiply to their number.
    """
    sizes = [config.data, config.fsdp]
    devices = jax.devices() if devices is None else devices
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known and len(devices) % known == 0:
        sizes[sizes.index(-1)] = len(devices) // known
    if min(sizes) < 1 or math.prod(sizes) != len(devices):
        raise UsageError(
            f"mesh.data={config.data} x mesh.fsdp={config.fsdp} doesn't make {len(devices)} devices; "
            "at most one of them may be -1, which stands for the rest"
        )
    return jax.make_mesh(sizes, BATCH_AXES, axis_types=(AxisType.Auto,) * 2, devices=devices)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over all devices."""
    return NamedSharding(mesh, P(BATCH_AXES))


def check_batch_size(batch_size: int, accumulation: int, mesh: Mesh | AbstractMesh) -> None:
    """Raises UsageError where a microbatch doesn't divide over the devices."""
    if batch_size % (accumulation * mesh.size):
        microbatches = f" in {accumulation} microbatches" if accumulation > 1 else ""
        raise UsageError(
            f"a batch of {batch_size}{microbatches} doesn't divide over {mesh.size} devices; "
            f"choose a multiple of {accumulation * mesh.size}"
        )


def tree_shardings(tree: Any, mesh: Mesh | AbstractMesh) -> Any:
    """The sharding of every array of `tree`: parameters, or a state that repeats their paths. Scalars are replicated.

    Raises UsageError where an axis doesn't divide by the mesh, ValueError where not exactly one row matches.
    """

    def sharding(path, leaf) -> NamedSharding:
        name = "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)
        spec = parameter_spec(name) if leaf.ndim else P()
        for axis, (size, split) in enumerate(zip(leaf.shape, spec)):
            if split and size % mesh.shape[split]:
                raise UsageError(
                    f"{name} has {size} rows on axis {axis}, which mesh.{split}={mesh.shape[split]} doesn't divide; "
                    f"choose a mesh.{split} that does"
                )
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
