"""The demo as BERT: its block, and its question about pairs of segments.

    bert-jax pretrain configs/demo_bert.py --workdir runs/demo_bert

The same text and vocabulary as configs/demo.py, which learns more in the time; this one knows next sentences.

Hardware and time: two CPU cores; about 7 minutes of training on two virtual cores of an AMD EPYC with bfloat16
instructions.
What to expect: held-out MLM accuracy 0.460 (always the most frequent piece: 0.056) and NSP accuracy 0.808 (the more
frequent class: 0.615), a little more or less by the packages that are installed.

BERT's recipe wants days. This one is made for a short run of a small model on a small text: few and narrow layers and
short sequences (none of them shortened further); no dropout, as each sequence is seen only a few times; larger initial
weights, as the model is narrow; small chunks, so that random second segments come from related text, which made NSP
slower to learn here and MLM quicker. Muon in batches of 64 learns more in the same time than AdamW, BERT's optimizer,
in batches of 32: both accuracies are higher (docs/experiments.md).
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig.tiny(
        feedforward_size=256,
        num_heads=4,
        max_positions=64,
        dropout=0.0,
        attention_dropout=0.0,
        initializer_range=0.06,
    ),
    vocabulary=VocabularyConfig(size=8192),
    data=DataConfig(source="python-docs", held_out=0.05, short_sequence_probability=0.0, chunk_megabytes=1.0),
    optimizer=OptimizerConfig(
        name="muon",
        peak_learning_rate=8e-3,
        warmup=0.05,
        bias_correction=True,
        beta2=0.98,
        epsilon=1e-8,
        weight_decay=0.1,
    ),
    phases=(Phase(steps=4000, length=64, batch_size=64),),
    evaluation=EvaluationConfig(every=1000),
    checkpoints=CheckpointConfig(every=1000),
)
