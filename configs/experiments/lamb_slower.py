"""Experiment: LAMB as in lamb.py, at a quarter of its rate.

    bert-jax pretrain configs/experiments/lamb_slower.py --workdir runs/lamb_slower --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/lamb.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/lamb")
config = base.replace(optimizer=base.optimizer.replace(peak_learning_rate=5e-3))
