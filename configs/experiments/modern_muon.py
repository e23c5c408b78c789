"""Experiment: the block of modern.py, trained with Muon at twice the rate of AdamW.

    bert-jax pretrain configs/experiments/modern_muon.py --workdir runs/modern_muon --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/modern.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/modern")
config = base.replace(optimizer=base.optimizer.replace(name="muon", peak_learning_rate=6e-3))
