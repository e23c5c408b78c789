"""DaNetQA: does a Russian text answer a question with yes? (Russian SuperGLUE).

bert-jax finetune configs/finetune/danetqa.py --init RUN --workdir RUN2 --task.train FILE --task.dev FILE
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="danetqa",
        kind="class",
        texts=("question", "passage"),
        max_length=256,
    ),
)
