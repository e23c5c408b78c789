"""Settings of pretrainings that are fitted to a published model, to the text, and to this machine."""

from typing import Annotated, ClassVar

from pydantic import Field

from bert_jax.config.run import RunConfig


class FittedConfig(RunConfig):
    """Settings from which `pretraining/fitting.py` derives those of a run."""

    minutes: Annotated[float, Field(gt=0.0)] | None = None
    """Minutes that the training may take on this machine, without those for reading and preparing the text: a step is
    timed, and the batch size, which is that of the last phase or a multiple of it, and the number of steps are chosen
    to fill the minutes. (Without memory for that batch a smaller one is taken.) Phases keep their shares of the steps.
    None: no limit."""


class AdaptConfig(FittedConfig):
    """Settings with which a published model is adapted to a text. The run has the model's own settings, and its
    vocabulary or the one that replaces it.

    Settings of `model` that the config file or a flag gives, such as dropout, replace those of the published model;
    model.compute_dtype always does. A size or kind of `vocabulary` that is given, or a file with other pieces, puts
    another vocabulary in the place of the model's.
    """

    FOLLOWS_INIT: ClassVar[bool] = True


class ScratchConfig(FittedConfig):
    """Settings with which a model is trained on a small text from random parameters. The steps follow from the number
    of words, and so do the sizes of the model and of its vocabulary that aren't given."""

    passes: Annotated[float, Field(gt=0.0)] | None = None
    """Number of times that the text is seen; with `minutes`, the maximum, even if minutes are left. None: 10 to 100, by
    the number of words; with `minutes`, 100."""
