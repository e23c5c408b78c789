"""Experiment: three layers of width 192 at the rate that is best for two of 128.

    bert-jax pretrain configs/experiments/three_layers_faster.py --workdir runs/three_layers_faster \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/three_layers.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/three_layers")
config = base.replace(optimizer=base.optimizer.replace(peak_learning_rate=3e-3))
