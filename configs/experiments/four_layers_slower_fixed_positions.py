"""Experiment: four_layers_slower.py with fixed positions in place of rotary ones.

    bert-jax pretrain configs/experiments/four_layers_slower_fixed_positions.py --workdir runs/fixed_positions \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/four_layers_slower.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/four_layers_slower")
config = base.replace(model=base.model.replace(positions="sinusoidal"))
