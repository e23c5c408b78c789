"""Experiment: four layers of width 256 on sequences of 128, which stand for long on the plateau of word frequencies.

    bert-jax pretrain configs/experiments/four_layers.py --workdir runs/four_layers --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/full_sentences.py, and as many tokens a step. The other recipes of this name
tell by which part of ModernBERT's block the plateau is left.
"""

from bert_jax.cli.config_files import load_config
from bert_jax.config.phase import Phase

base = load_config("experiments/full_sentences")
config = base.replace(
    model=base.model.replace(num_layers=4, hidden_size=256, num_heads=8),
    phases=(Phase(steps=4000, length=128, batch_size=16),),
)
