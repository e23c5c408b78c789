"""ChnSentiCorp: is a Chinese review positive?

    bert-jax finetune configs/finetune/chnsenticorp.py --init RUN --workdir RUN2 \
      --task.train FILE --task.dev FILE

What to expect: BERT-base-Chinese is right in 94% to 95% of the dev rows.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="chnsenticorp",
        kind="class",
        texts=("text_a",),
        max_length=256,
    ),
)
