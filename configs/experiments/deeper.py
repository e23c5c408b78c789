"""Experiment: three layers of width 192 in place of two of 128, for as long.

    bert-jax pretrain configs/experiments/deeper.py --workdir runs/deeper --data.source "text:corpus/*.txt.gz"

A step of it learns more and takes longer. All else is as in configs/experiments/modern_muon_masks.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/modern_muon_masks")
config = base.replace(model=base.model.replace(num_layers=3, hidden_size=192, num_heads=6, feedforward_size=512))
