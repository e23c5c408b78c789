"""The error for a damaged file of a prepared data set."""

from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError


def damage_error(path: Place, error: Exception | str) -> RunError:
    """Builds the error to raise if the file at `path` can't be used, with `error` as the reason."""
    return RunError(
        f"{path} is damaged ({first_line(error)}); delete {path.parent} and give the same command again to prepare it "
        "anew"
    )


def first_line(error: Exception | str) -> str:
    """The first line of a library's message, or the name of its exception if there is no message."""
    return str(error).partition("\n")[0] or type(error).__name__
