"""The whole main job on a laptop.

bert-jax pretrain configs/demo.py --workdir runs/demo
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig, ExecutionConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.config.vocabulary import VocabularyConfig

config = RunConfig(
    model=ModelConfig.tiny(max_positions=64, dropout=0.0, attention_dropout=0.0, initializer_range=0.06),
    vocabulary=VocabularyConfig(size=8192),
    data=DataConfig(source="python-docs", held_out=0.05),
    optimizer=OptimizerConfig(peak_learning_rate=2e-3, warmup=0.05, bias_correction=True),
    phases=(Phase(steps=3000, length=64, batch_size=64),),
    execution=ExecutionConfig(unroll=2),
    evaluation=EvaluationConfig(every=500),
    checkpoints=CheckpointConfig(every=500),
)
