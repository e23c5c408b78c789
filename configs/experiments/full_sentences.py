"""Experiment: masked words alone on whole sentences, the recipe that the others of configs/experiments are changes of.

    bert-jax pretrain configs/experiments/full_sentences.py --workdir runs/full --data.source "text:corpus/*.txt.gz"

A small model for minutes of two CPU cores: 2 layers of width 128, fixed positions, no dropout, 32 sequences of 64
tokens a step. launch/experiments.py trains all recipes for the same time and says how they are compared; the number of
steps here only stands for one that it sets.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.config.vocabulary import VocabularyConfig

config = RunConfig(
    model=ModelConfig(
        num_layers=2,
        hidden_size=128,
        num_heads=4,
        max_positions=128,
        positions="sinusoidal",
        dropout=0.0,
        attention_dropout=0.0,
        initializer_range=0.06,
    ),
    vocabulary=VocabularyConfig(size=8192),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    objective=ObjectiveConfig(pair="none"),
    optimizer=OptimizerConfig(
        peak_learning_rate=3e-3,
        warmup=0.05,
        schedule="warmup_stable_decay",
        decay_share=0.5,
        bias_correction=True,
        beta2=0.98,
        epsilon=1e-8,
        weight_decay=0.1,
    ),
    phases=(Phase(steps=4000, length=64, batch_size=32),),
    evaluation=EvaluationConfig(every=2000),
    checkpoints=CheckpointConfig(every=1000),
)
