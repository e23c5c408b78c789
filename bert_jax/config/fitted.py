"""Settings of pretrainings that are fitted to a published model, to the text, and to this machine."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from bert_jax.config.run import RunConfig
from bert_jax.system.errors import Setting, UsageError

_HEAD, _NARROWEST, _WIDEST = 64, 32, 128
"""Width of BERT's heads, and the bounds of the width of heads that are about as wide."""


def heads_of(width: int) -> int | None:
    """The number of heads that divides a model's width so that each is as near to 64 features as possible. None if no
    head would be about as wide. Heads have an even width, as rotary positions need; a narrow model has one head."""
    narrowest = min(width, _NARROWEST)
    numbers = [
        heads
        for heads in range(1, width // narrowest + 1)
        if width % (2 * heads) == 0 and narrowest <= width // heads <= _WIDEST
    ]
    return min(numbers, key=lambda heads: abs(width // heads - _HEAD), default=None)


class FittedConfig(RunConfig):
    """Settings from which `pretraining/fitting.py` derives those of a run."""

    minutes: Annotated[float, Field(gt=0.0)] | None = None
    """Minutes that the training may take on this machine, without those for preparing the text and for evaluations: a
    step is timed, and the batch size, which is that of the last phase or a multiple of it, and the number of steps are
    chosen to fill the minutes. (Without memory for that batch a smaller one is taken.) Phases keep their shares of the
    steps. None: no limit."""


class AdaptConfig(FittedConfig):
    """Settings with which a published model is adapted to a text. The run has the model's own settings, and its
    vocabulary or the one that replaces it.

    Settings of `model` that the config file or a flag gives, such as dropout, replace those of the published model;
    model.compute_dtype always does. A size or kind of `vocabulary` that is given, or a file with other pieces, puts
    another vocabulary in the place of the model's. With a kind alone its size follows from the words of the text.

    Evaluations and checkpoints whose number of steps (`every`) isn't given are 250 steps apart, and in runs of fewer
    than 1,000 steps a quarter of the steps, so that a training that harms the model ends early.
    """

    FOLLOWS_INIT: ClassVar[bool] = True


class ScratchConfig(FittedConfig):
    """Settings with which a model is trained on a small text from random parameters. The steps follow from the number
    of words, and so do the sizes of the model and of its vocabulary that aren't given."""

    passes: Annotated[float, Field(gt=0.0)] | None = None
    """About the number of times that the text is seen: steps are computed for 1.5 pieces a word. With `minutes` it is
    the maximum, even if minutes are left. None: 10 to 100, by the number of words; with `minutes`, 100."""

    def set(self, values: Mapping[str, Any]) -> Self:
        """A validated copy, as by `RunConfig.set`. A `model.hidden_size` brings the heads that suit it, unless their
        number is given too."""
        names = {name.replace("-", "_"): value for name, value in values.items()}
        width = names.get("model.hidden_size")
        given = "model.num_heads" in names or "num_heads" in self.model.model_fields_set
        if isinstance(width, int) and width > 0 and not given:
            if not (heads := heads_of(width)):
                raise UsageError(
                    f"{Setting('model.hidden_size', width)} can't be divided into heads of about {_HEAD} features; "
                    f"choose a multiple of {_HEAD}, or give {Setting('model.num_heads')}"
                )
            values = {"model.num_heads": heads, **values}
        return super().set(values)
