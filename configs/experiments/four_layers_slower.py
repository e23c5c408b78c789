"""Experiment: four layers of width 256 on sequences of 128, with modern.py's block and a third of its rate.

    bert-jax pretrain configs/experiments/four_layers_slower.py --workdir runs/four_layers_slower \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/four_layers_modern.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/four_layers_modern")
config = base.replace(optimizer=base.optimizer.replace(peak_learning_rate=1e-3))
