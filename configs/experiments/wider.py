"""Experiment: four layers of width 256 in place of three of 192, at two thirds of the rate.

    bert-jax pretrain configs/experiments/wider.py --workdir runs/wider --data.source "text:corpus/*.txt.gz"

All else, full sequences and 30 to 15% masked among it, is as in configs/experiments/three_layers_wide_heads.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/three_layers_wide_heads")
config = base.replace(
    model=base.model.replace(num_layers=4, hidden_size=256, num_heads=4, feedforward_size=688),
    optimizer=base.optimizer.replace(peak_learning_rate=1e-3),
)
