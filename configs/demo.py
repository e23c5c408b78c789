"""The whole main job in minutes, on a laptop.

    bert-jax pretrain configs/demo.py --workdir runs/demo

The corpus comes with Python: docstrings of the standard library and the installed packages.

Hardware and time: two CPU cores; 6 to 7 minutes of training on two virtual cores of an AMD EPYC with bfloat16
instructions.
What to expect: held-out MLM accuracy 0.504 (always the most frequent piece: 0.064), a little more or less by the
packages that are installed.

The recipe is made for a short run of a small model on a small text: few and narrow layers and short sequences (none of
them shortened further); no dropout, as each sequence is seen only a few times; larger initial weights, as the model is
narrow. ModernBERT's block (rotary positions, norms before the layers, gated feed-forward, no biases) is the first thing
to take: with it a model knows more than how frequent words are after a seventh of the steps. Muon in batches of 64
reaches in half of the time what AdamW reaches (docs/experiments.md). configs/demo_bert.py is the same job as BERT does
it.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig.modern(
        num_layers=2,
        hidden_size=128,
        num_heads=4,
        feedforward_size=256,
        max_positions=64,
        rotary_base=10_000.0,
        local_window=None,
        global_every=1,
        activation="gelu_tanh",
        initializer_range=0.06,
    ),
    vocabulary=VocabularyConfig(size=8192),
    data=DataConfig(source="python-docs", held_out=0.05, short_sequence_probability=0.0, chunk_megabytes=1.0),
    objective=ObjectiveConfig(pair="none"),
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
    evaluation=EvaluationConfig(every=500),
    checkpoints=CheckpointConfig(every=1000),
)
