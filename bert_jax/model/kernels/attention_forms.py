"""The table of attention's implementations (forms), and the choice among them."""

from collections.abc import Iterable

import jax
from jax.sharding import AbstractMesh, Mesh

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import AttentionForm, ExecutionConfig
from bert_jax.model.exact_attention import EXACT
from bert_jax.model.kernels.attention_form import AttentionCase, Form
from bert_jax.model.kernels.gpu_form import GPU
from bert_jax.model.kernels.tpu_form import TPU
from bert_jax.system.errors import Setting, UsageError

FORMS: dict[AttentionForm, tuple[Form, ...]] = {
    "auto": (TPU, GPU),
    "exact": (EXACT,),
    "tpu": (TPU,),
    "gpu": (GPU,),
}
"""The candidate forms of each setting, in order. The first usable one is chosen, or the exact form if none is."""


def form_for(name: AttentionForm, case: AttentionCase) -> Form:
    """The first form of a setting that can be used for `case`; the exact form if none can."""
    return next((form for form in FORMS[name] if not _obstacle(form, case)), EXACT)


def _obstacle(form: Form, case: AttentionCase) -> str | None:
    """Why `form` can't be used for `case`; None if it can."""
    if case.has_score_terms and form is not EXACT:
        return f"{Setting('model.positions', 'relative')} adds terms to the scores, which no kernel does"
    return form.obstacle(case)


def training_forms(
    name: AttentionForm, config: ModelConfig, length: int, sequences: int, mesh: Mesh | AbstractMesh
) -> tuple[Form, Form]:
    """The forms of global and of local attention in a training on rows of `length` tokens and at most `sequences`
    sequences."""
    whole, local = (_training_case(config, length, sequences, mesh, local) for local in (False, True))
    return form_for(name, whole), form_for(name, local)


def check_attention(
    execution: ExecutionConfig, config: ModelConfig, rows: Iterable[tuple[int, int]], mesh: Mesh
) -> None:
    """Raises UsageError if `execution.attention` names a form that can't be used for training on `rows`. Each of `rows`
    is (tokens, largest number of sequences)."""
    name = execution.attention
    if name == "auto":
        return
    (form,) = FORMS[name]
    for length, sequences in rows:
        if reason := _obstacle(form, _training_case(config, length, sequences, mesh)):
            raise UsageError(f"{Setting('execution.attention', name)} can't be used: {reason}; set it to auto or exact")


def _training_case(
    config: ModelConfig, length: int, sequences: int, mesh: Mesh | AbstractMesh, local: bool = False
) -> AttentionCase:
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        rate = config.attention_dropout
        return AttentionCase.of(config, length, dropout=rate, sequences=sequences, local=local)
