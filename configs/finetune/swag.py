"""SWAG: which of four ways does a scene go on?

    bert-jax finetune configs/finetune/swag.py --init RUN --workdir RUN2 --task.train FILE --task.dev FILE

What to expect: BERT-base is right in 81.6% of the dev rows.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="swag",
        kind="choice",
        texts=("sent1",),
        choices=("{sent2} {ending0}", "{sent2} {ending1}", "{sent2} {ending2}", "{sent2} {ending3}"),
        batch_size=16,
    ),
)
