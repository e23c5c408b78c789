"""The two kinds of failure that a user sees, each as one line."""

_SHOWN = 60
"""Characters of a value in an error."""


def shown(value: object) -> str:
    """`value` as an error quotes it: on one line, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class BertJaxError(Exception):
    """Base of both kinds. The text names the value, what was expected and what to do about it."""

    exit_code = 1


class UsageError(BertJaxError):
    """What was asked can't be done: a setting, a flag, a path or an input file is wrong. Exit code 2."""

    exit_code = 2


class RunError(BertJaxError):
    """Something failed under way: a full disk, a damaged file, a loss that stays infinite. Exit code 1."""


class HostLost(BertJaxError):
    """Another process of the run died or can't be reached. Exit code 134, as of a process that JAX ends for it."""

    exit_code = 134

    def __init__(self, reason: str, doing: str):
        """`reason`: what JAX says of it. `doing`: what this process was doing."""
        super().__init__(
            f"another host of this run was lost or didn't come ({reason}), while this one was {doing}; start the "
            "command again on all hosts: it goes on from the last checkpoint"
        )


class Interrupted(BertJaxError):
    """A signal stopped the run after a checkpoint was written. Exit code 143."""

    exit_code = 143


def install_extra(name: str) -> str:
    """The command that installs an extra; the project is on no package index, so it is installed from its checkout."""
    return f'pip install -c launch/constraints.txt -e ".[{name}]"'
