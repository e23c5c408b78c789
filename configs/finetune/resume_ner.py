"""Names, jobs and the like in Chinese resumes, tagged by character (BMES).

bert-jax finetune configs/finetune/resume_ner.py --init RUN --workdir RUN2 --task.train FILE --task.dev FILE
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="resume_ner",
        kind="tags",
        texts=("words",),
        label="tags",
        max_length=192,
    ),
)
