"""Compares the files of a run with their checksums, for bert-jax verify."""

from collections.abc import Iterator
from typing import NamedTuple

from bert_jax.instances.prepared_data import PreparedData
from bert_jax.records.curation import curation_damage
from bert_jax.run.checkpoint_manifest import checkpoint_damage, complete, lost_checkpoints
from bert_jax.run.metrics import DamagedLine, listed_damage, metrics_lines
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import no_run
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, UsageError

GOOD, READABLE = "good", "every line can be read"
_NOT_COVERED = "not covered: no checksum of it is known"
NEVER_COVERED = (
    "the text that data was prepared from",
    "metrics.jsonl",
    "TensorBoard events",
    "events.jsonl",
    "profile/",
    "report.html",
)
"""Files of a run that have no checksum."""


class Verdict(NamedTuple):
    """The verdict on one file, checkpoint or data set."""

    path: Place
    damage: str | None
    """The damage in words; None if no file differs from its checksum."""
    remark: str = GOOD
    """What is printed if there is no damage."""


def verify(run: RunDirectory) -> list[Verdict]:
    """Compares the files of `run` with their checksums. Raises UsageError if there is neither a checkpoint nor data."""
    finished, gone = complete(run.checkpoints), lost_checkpoints(run.checkpoints)
    data = _data_sets(run)
    if not finished and not gone and not data:
        raise no_run(run.path, "has no checkpoint and no data")
    verdicts = [_of_manifest(run), *_of_files(run)]
    if run.metrics_file.exists():
        verdicts.append(_of_metrics(run))
    verdicts += [_of_data(run, path) for path in data]
    if run.curation.exists():
        verdicts.append(Verdict(run.curation, curation_damage(run.curation)))
    verdicts += filter(None, map(_of_checkpoint, finished))
    lost = {path: "its manifest.json is gone" if path.exists() else "it isn't there now" for path in gone}
    return verdicts + [Verdict(path, f"it was finished, and {what}") for path, what in lost.items()]


def _of_manifest(run: RunDirectory) -> Verdict:
    path = run.manifest.path
    try:
        noted = run.manifest.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return Verdict(path, f"damaged ({reason}): what it covers is not known")
    return Verdict(path, "it is gone: what it covered is not known" if noted is None else None)


def _of_files(run: RunDirectory) -> Iterator[Verdict]:
    """The verdicts on single files; the tokenizer counts as one."""
    for place in (run.config_file, run.tokenizer_directory, run.results_file, run.reading_file):
        if run.manifest.listed(place):
            yield Verdict(place, run.manifest.damage(place))
        elif place.exists():
            yield Verdict(place, None, _NOT_COVERED)


def _of_metrics(run: RunDirectory) -> Verdict:
    if not run.metrics_file.is_file():
        return Verdict(run.metrics_file, "it is no file")
    unreadable = listed_damage([line for line in metrics_lines(run.metrics_file) if isinstance(line, DamagedLine)])
    return Verdict(run.metrics_file, unreadable and f"lines that can't be read: {unreadable}", READABLE)


def _of_checkpoint(path: Place) -> Verdict | None:
    """The verdict on a checkpoint; None if the run, which may be training, has deleted it meanwhile."""
    damage = checkpoint_damage(path)
    return None if damage and path not in complete(path.parent) else Verdict(path, damage)


def _data_sets(run: RunDirectory) -> list[Place]:
    """The data sets in the run, and the data sets that its manifest lists."""
    listed = {run.data(int(length)) for length in run.manifest.readable().data}
    return sorted({*(run.path / "data").glob("length-*"), *listed})


def _of_data(run: RunDirectory, path: Place) -> Verdict:
    try:
        prepared = PreparedData.unchecked(path)
    except RunError as error:
        return Verdict(path, str(error))
    except UsageError as error:  # another release wrote it
        return Verdict(path, None, f"not read: {error}")
    written = run.manifest.readable().data.get(path.name.removeprefix("length-"))
    if prepared is None and written:
        return Verdict(path, "its prepared.json is gone; give the run's command again, which prepares it")
    if prepared is None:
        return Verdict(path, None, "not finished; the command that began it goes on")
    file = "prepared.json" if written not in (None, prepared.shards_hash) else prepared.damaged_file()
    if file:
        return Verdict(path, f"{file} is not as it was written; delete {path}, and the next start prepares it again")
    return Verdict(path, None)
