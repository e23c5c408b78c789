"""Whether all hosts of a run were started with the same settings and the same version of this package."""

import json

import jax

from bert_jax.config.settings import Settings
from bert_jax.run.hosts import fails_together, text_of_first, wait_for_all
from bert_jax.run.recorded_config import described, differences
from bert_jax.system.errors import UsageError
from bert_jax.system.version import __version__

_REMEDY = "start the same command on all hosts"


def check_same_settings(config: Settings) -> None:
    """Raises UsageError on all hosts if one of them differs from the first in a setting or in the version. The settings
    `hosts` may differ."""
    if not jax.distributed.is_initialized() or jax.process_count() == 1:
        return
    flat = {name: value for name, value in config.flat().items() if not name.startswith("hosts.")}
    mine = json.dumps([__version__, flat])
    wait_for_all("settings")  # the collective behind it waits for some seconds only
    failure = _difference(text_of_first(mine), mine)
    elsewhere = f"another host of this run has other settings than this one, or another version; {_REMEDY}"
    if failure := fails_together(failure, elsewhere):
        raise UsageError(failure)


def _difference(first: str, mine: str) -> str | None:
    """Why the version and settings of this host, as JSON, don't go with those of the first; None if they do."""
    (their_version, theirs), (version, ours) = json.loads(first), json.loads(mine)
    if version != their_version:
        return f"this host has bert_jax {version}, and the first host of this run {their_version}; install one of them"
    if not (changes := differences(theirs, ours)):
        return None
    return f"this host has other settings than the first host of this run: {described(changes)}; {_REMEDY}"
