"""Parts of speech of a Universal Dependencies treebank.

    bert-jax finetune configs/finetune/ud.py --init RUN --workdir RUN2 --task.train FILE --task.dev FILE

Other tags: --task.label xpos.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="ud",
        kind="tags",
        texts=("words",),
        label="upos",
        max_length=192,
    ),
)
