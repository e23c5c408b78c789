"""SQuAD 2.0: as 1.1, but a text may have no answer.

    bert-jax finetune configs/finetune/squad2.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build squad/v2.0 --file_format=array_record

With files of one's own:

    bert-jax finetune configs/finetune/squad2.py --init RUN --workdir RUN2 \
      --task.train FILE --task.dev FILE

What to expect: BERT-large has F1 0.819 and exact match 0.787 on the dev questions.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.task import SpanConfig, TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="squad2",
        kind="span",
        texts=("question", "context"),
        label="answers",
        train="tfds:squad/v2.0:train",
        dev="tfds:squad/v2.0:validation",
        max_length=384,
        epochs=2.0,
        batch_size=48,
        span=SpanConfig(null_answers=True),
    ),
    optimizer=OptimizerConfig(peak_learning_rate=5e-5, warmup=0.1),
)
