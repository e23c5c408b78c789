"""What two CPU cores learn from 50 MB of text in an hour as BERT does: its block, masked words and next sentences.

    bert-jax pretrain configs/cpu_bert.py --workdir runs/cpu_bert --data.source "text:corpus/*.txt.gz"

Hardware and time: two CPU cores; 81 minutes beside other work, 52 at the rates that the steps had when they were alone.
(The warm-up was 860 steps long, as the run was planned with more steps at first; it is 855 here.)
What to expect: on 48 MB of English Wikipedia held-out MLM accuracy 0.384 (0.048 by frequency) and NSP accuracy 0.868
(0.538): grammar and topics, no facts. It is a model for trying the other commands without an accelerator.

A small model sees more of the text: BERT-Mini at length 128 stood at the loss of word frequencies (6.6) for as long as
it was tried, and four layers of this width at length 128 still did (6.3) after 160,000 sequences. Two layers on 64
tokens with fixed sinusoidal positions leave that plateau after some 80,000; with learned positions after 130,000, and
what comes after the first 64 is then hardly learned (accuracy fell from 0.36 to 0.25 where sequences became longer).
Sinusoids need no learning: later phases of 128 and 512 tokens go on where the one before stopped. As in configs/demo.py
no dropout, larger initial weights, Adam's bias correction, a shorter memory and more decay.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        num_layers=2,
        hidden_size=128,
        num_heads=4,
        positions="sinusoidal",
        dropout=0.0,
        attention_dropout=0.0,
        initializer_range=0.06,
    ),
    vocabulary=VocabularyConfig(size=8192),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
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
    phases=(
        Phase(steps=10_000, length=64, batch_size=64),
        Phase(steps=3_000, length=128, batch_size=32),
        Phase(steps=1_500, length=512, batch_size=8),
        Phase(steps=4_500, length=128, batch_size=32),
    ),
    evaluation=EvaluationConfig(every=2000, max_sequences=1024),
    checkpoints=CheckpointConfig(every=1000),
)
