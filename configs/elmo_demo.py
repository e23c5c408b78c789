"""ELMo on pieces of words, in minutes on a laptop.

    bert-jax pretrain configs/elmo_demo.py --workdir runs/elmo

Two stacks of LSTM layers (Peters et al. 2018), one that reads forwards and one that reads backwards, over the text and
the vocabulary of configs/demo.py. Each predicts the token that it reads next; they share the word table and the output.

Hardware and time: two CPU cores; 1,200 steps took 24 minutes beside other work, about half of that alone. Much of a
step is 4,096 predictions (2 directions x 32 sequences x 64 tokens), each over 8,192 pieces.
What to expect: a held-out accuracy of 0.345 over both directions (always the most frequent piece: 0.059) and a loss of
4.03 nats (6.05 by frequency alone). They aren't comparable with those of masked tokens, each of which is predicted from
both sides.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        layer="lstm",
        num_layers=2,
        hidden_size=256,
        feedforward_size=256,
        max_positions=64,
        positions="none",
        num_segments=0,
        dropout=0.0,
        initializer_range=0.1,
    ),
    vocabulary=VocabularyConfig(size=8192),
    data=DataConfig(source="python-docs", held_out=0.05, short_sequence_probability=0.0, chunk_megabytes=1.0),
    objective=ObjectiveConfig(predict="both", pair="none"),
    optimizer=OptimizerConfig(
        peak_learning_rate=3e-3,
        warmup=0.05,
        bias_correction=True,
        beta2=0.98,
        epsilon=1e-8,
        weight_decay=0.1,
    ),
    phases=(Phase(steps=1200, length=64, batch_size=32),),
    evaluation=EvaluationConfig(every=400),
    checkpoints=CheckpointConfig(every=400),
)
