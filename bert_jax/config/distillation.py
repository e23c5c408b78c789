"""Settings of distillation: what a model that is pretrained learns from its teacher."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationError

from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import Share
from bert_jax.config.settings import Settings, SettingsError
from bert_jax.config.training import Positive


def _checked_settings(text: str) -> str:
    try:
        ModelConfig.model_validate_json(text)
    except (ValidationError, SettingsError):
        raise ValueError(" holds no settings of a model; leave it out, pretraining sets it") from None
    return text


class DistillationConfig(Settings):
    """What the model learns from `teacher` beside masked tokens. The loss is (1 - weight) times the loss of masked
    tokens plus weight times the divergence from the teacher."""

    PREFIX: ClassVar[str] = "--distillation."
    kind: Literal["predictions", "relations"] = "predictions"
    """What is learned.

    - predictions: the teacher's distribution over the vocabulary at the masked tokens (Hinton et al. 2015; Sanh et al.
      2019). The loss is the Kullback-Leibler divergence from it. The teacher needs a masked-language head.
    - relations: the teacher's self-attention relations: in each head the softmax of the products of queries with
      queries, of keys with keys, and of values with values (MiniLMv2, Wang et al. 2021). The loss is the sum of the
      three divergences from them. The teacher needs no head, and the widths and heads of both models may differ. The
      student's head for masked tokens isn't taught, so keep weight below 1 for a model that fills masks."""
    weight: Annotated[Share, Field(gt=0.0)] = 0.5
    """Weight of the teacher in the loss; masked tokens have the rest."""
    temperature: Positive = 2.0
    """With kind=predictions: both models' logits are divided by it, and the loss is multiplied by its square."""
    relation_heads: Annotated[int, Field(gt=0)] = 16
    """With kind=relations: heads into which the queries, keys and values of both models are divided anew. The number
    must divide both widths."""
    layer: Annotated[int, Field(ge=0)] | None = None
    """With kind=relations: the teacher's layer, numbered from 0, whose relations the student's last layer learns. Of a
    large teacher an upper middle layer is best (20 of 24 in the paper). None: the last."""
    settings: Annotated[str, AfterValidator(_checked_settings)] | None = None
    """Settings of the teacher's model, as JSON. Pretraining sets it, so that a run goes on without the teacher's
    files."""
