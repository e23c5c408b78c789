"""Whether everything of a run is as it was written."""

from typing import NamedTuple

from bert_jax.data.prepared_data import PreparedData
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, UsageError
from bert_jax.training.manifest import complete, damaged_file
from bert_jax.training.run_directory import RunDirectory


class Verdict(NamedTuple):
    """On one checkpoint or data set."""

    path: Place
    damage: str | None
    """What isn't as it was written; None where all is."""
    finished: bool = True
    """False of a data set that is being prepared, or was when its command ended."""


def verify(run: RunDirectory) -> list[Verdict]:
    """Reads every file of every checkpoint and data set and compares its checksum with the one that was noted then.

    Raises UsageError where there is neither.
    """
    checkpoints = list(filter(None, map(_of_checkpoint, complete(run.checkpoints))))
    data = [_of_data(path) for path in sorted((run.path / "data").glob("length-*"))]
    if not checkpoints and not data:
        raise UsageError(f"{run.path} has no checkpoint and no data to verify; give a run that has begun")
    return checkpoints + data


def _of_checkpoint(path: Place) -> Verdict | None:
    """None where the run, which may be under way, has deleted it meanwhile."""
    file = damaged_file(path)
    if file and path not in complete(path.parent):
        return None
    return Verdict(path, file and f"{file} is not as it was written")


def _of_data(path: Place) -> Verdict:
    try:
        prepared = PreparedData.read(path)
    except RunError as error:
        return Verdict(path, str(error))
    if prepared is None:
        return Verdict(path, None, finished=False)
    file = prepared.damaged_file()
    return Verdict(path, file and f"{file} is not as it was written; delete {path}, and it is prepared anew")
