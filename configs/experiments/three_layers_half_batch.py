"""Experiment: three layers of width 192 on half as many sequences a step.

    bert-jax pretrain configs/experiments/three_layers_half_batch.py --workdir runs/three_layers_half_batch \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/three_layers.py.
"""

from bert_jax.cli.config_files import load_config
from bert_jax.config.phase import Phase

base = load_config("experiments/three_layers")
config = base.replace(phases=(Phase(steps=4000, length=64, batch_size=16),))
