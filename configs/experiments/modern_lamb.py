"""Experiment: the block of modern.py, trained with LAMB at the rate of lamb_slower.py.

    bert-jax pretrain configs/experiments/modern_lamb.py --workdir runs/modern_lamb --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/modern.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/modern")
config = base.replace(optimizer=base.optimizer.replace(name="lamb", peak_learning_rate=5e-3))
