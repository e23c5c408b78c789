"""Settings of a pretraining that goes on from a published model, which gives most of them."""

from typing import Annotated

from pydantic import Field

from bert_jax.config.run import RunConfig


class AdaptConfig(RunConfig):
    """Settings with which a published model is adapted to a text. `pretraining/adaptation.py` makes the settings of a
    run of them: the model's own settings, its vocabulary or the one that replaces it, and the phases that it needs.

    The settings of `model` that differ from the defaults replace those of the model, such as its dropout.
    """

    minutes: Annotated[float, Field(gt=0.0)] | None = None
    """Minutes that the training may take on this machine, without those for reading and preparing the text: a step is
    measured, and batch and steps are fitted to it, in the proportion of the phases' steps. None: the phases as they
    are."""
