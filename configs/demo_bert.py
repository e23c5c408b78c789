"""The demo as BERT: its block, its question about pairs of segments, AdamW.

    bert-jax pretrain configs/demo_bert.py --workdir runs/demo_bert

The same text and vocabulary as configs/demo.py, which learns more in the time; this one knows next sentences.

Hardware and time: two CPU cores, 5 to 15 minutes; training 4 min 36 s and all of it 5 min 29 s on two virtual cores of
an AMD EPYC with bfloat16 instructions.
What to expect: held-out MLM accuracy 0.444 (always the most frequent piece: 0.064) and NSP accuracy 0.770, or
0.805 in float32 with the docstrings of fewer packages (the more frequent class: 0.603).

BERT's recipe wants days. This one is made for a short run of a small model on a small text: few and narrow layers and
short sequences (none of them shortened further), for many steps; no dropout, as each sequence is seen only a few
times; a high rate, for which Adam needs its bias correction, a shorter memory and more decay; larger initial weights,
as the model is narrow; small chunks, so that random second segments come from related text, which made NSP slower to
learn here and MLM quicker.
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
        peak_learning_rate=3e-3, warmup=0.05, bias_correction=True, beta2=0.98, epsilon=1e-8, weight_decay=0.1
    ),
    phases=(Phase(steps=7600, length=64, batch_size=32),),
    evaluation=EvaluationConfig(every=3800),
    checkpoints=CheckpointConfig(every=1900),
)
