"""What is said of a damaged file of a prepared data set."""

from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError


def damage_error(path: Place, error: Exception | str) -> RunError:
    """The error to raise where the file at `path` can't be used for the reason `error`."""
    return RunError(
        f"{path} is damaged ({first_line(error)}); delete {path.parent} and give the same command again to prepare it "
        "anew"
    )


def first_line(error: Exception | str) -> str:
    """The reason that a library gives, or the name of its exception."""
    return str(error).partition("\n")[0] or type(error).__name__
