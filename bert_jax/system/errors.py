"""The two kinds of failure that a user sees, each as one line."""


class BertJaxError(Exception):
    """Base of both kinds. The text names the value, what was expected and what to do about it."""

    exit_code = 1


class UsageError(BertJaxError):
    """What was asked can't be done: a setting, a flag, a path or an input file is wrong. Exit code 2."""

    exit_code = 2


class RunError(BertJaxError):
    """Something failed under way: a full disk, a damaged file, a loss that stays infinite. Exit code 1."""


class Interrupted(BertJaxError):
    """A signal stopped the run after a checkpoint was written. Exit code 143."""

    exit_code = 143
