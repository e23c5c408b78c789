"""STS-B: how alike are two sentences, from 0 to 5? (GLUE).

    bert-jax finetune configs/finetune/stsb.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build glue/stsb --file_format=array_record

With files of one's own:

    bert-jax finetune configs/finetune/stsb.py --init RUN --workdir RUN2 \
      --task.train FILE --task.dev FILE --task.format tsv --task.label score \
      --task.columns genre file year id score sentence1 sentence2 license1 license2

What to expect: BERT-large has correlations of 0.900 on the dev rows.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="stsb",
        kind="number",
        texts=("sentence1", "sentence2"),
        train="tfds:glue/stsb:train",
        dev="tfds:glue/stsb:validation",
    ),
)
