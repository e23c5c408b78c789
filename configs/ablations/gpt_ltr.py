"""Ablation of pretraining: each next token from those before it, as GPT. See mlm_nsp.py, which it is compared with.

    bert-jax pretrain configs/ablations/gpt_ltr.py --workdir runs/gpt_ltr --data.source "text:corpus/*.txt.gz"

A step predicts at six times as many positions as the others' do, and is 2.7 times their FLOPs.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig, ExecutionConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.config.vocabulary import VocabularyConfig

config = RunConfig(
    model=ModelConfig(
        num_layers=2,
        hidden_size=128,
        num_heads=4,
        positions="sinusoidal",
        causal=True,
        dropout=0.0,
        attention_dropout=0.0,
        initializer_range=0.06,
    ),
    vocabulary=VocabularyConfig(size=4096),
    data=DataConfig(source="python-docs", held_out=0.05, short_sequence_probability=0.0),
    objective=ObjectiveConfig(predict="next", pair="none"),
    optimizer=OptimizerConfig(
        peak_learning_rate=2e-3,
        warmup=0.045,
        schedule="warmup_stable_decay",
        decay_share=0.3,
        bias_correction=True,
        beta2=0.98,
        epsilon=1e-8,
        weight_decay=0.1,
    ),
    phases=(Phase(steps=3000, length=64, batch_size=64),),
    execution=ExecutionConfig(unroll=2),
    evaluation=EvaluationConfig(every=1000, max_sequences=1024),
    checkpoints=CheckpointConfig(every=1000),
)
