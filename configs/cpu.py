"""What two CPU cores learn from 50 MB of text in an hour: a narrow model, a short run's recipe.

    bert-jax pretrain configs/cpu.py --workdir runs/cpu --data.source "text:corpus/*.txt.gz"

Hardware and time: two CPU cores; 69 minutes beside other work on two virtual cores of an AMD EPYC (family 26), and 103
minutes of one core's time in all. While nothing else ran, a step of 64 tokens took 0.1 s: an hour in all.
What to expect: on 48 MB of English Wikipedia held-out MLM accuracy 0.470 (always the most frequent piece: 0.050):
grammar and topics, no facts. It is a model for trying the other commands without an accelerator.

ModernBERT's block, as in configs/demo.py, leaves the plateau on which a model knows only how frequent words are after
some hundred steps, if the rate is low enough for the width (docs/experiments.md). Its rotary positions need no
learning, so that most steps are of 64 tokens and cheap, and later phases of 128 and 512 go on where the one before
stopped. Sequences are full, 30% of the tokens are masked at first and 15% at the end of each phase. No dropout, larger
initial weights, Adam's bias correction, a shorter memory and more decay, as in configs/demo.py.
configs/cpu_bert.py is the same job as BERT does it.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig.modern(
        num_layers=4,
        hidden_size=256,
        num_heads=4,
        feedforward_size=688,
        max_positions=512,
        rotary_base=10_000.0,
        local_window=None,
        global_every=1,
        activation="gelu_tanh",
        initializer_range=0.05,
    ),
    vocabulary=VocabularyConfig(size=8192),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0, whole_sentences=False),
    objective=ObjectiveConfig(pair="none", masked_share=0.3, masked_share_end=0.15),
    optimizer=OptimizerConfig(
        peak_learning_rate=1e-3,
        warmup=0.02,
        schedule="warmup_stable_decay",
        decay_share=0.5,
        bias_correction=True,
        beta2=0.98,
        epsilon=1e-8,
        weight_decay=0.1,
    ),
    phases=(
        Phase(steps=20_000, length=64, batch_size=32),
        Phase(steps=8_000, length=128, batch_size=16),
        Phase(steps=400, length=512, batch_size=4),
        Phase(steps=3_600, length=128, batch_size=16),
    ),
    evaluation=EvaluationConfig(every=2000, max_sequences=1024),
    checkpoints=CheckpointConfig(every=1000),
)
