"""Experiment: four layers of width 256 on sequences of 128, with rotary positions.

    bert-jax pretrain configs/experiments/four_layers_rotary.py --workdir runs/four_layers_rotary \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/four_layers.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/four_layers")
config = base.replace(model=base.model.replace(positions="rotary"))
