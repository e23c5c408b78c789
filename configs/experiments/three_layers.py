"""Experiment: three layers of width 192 with the block of modern.py, at half of its rate.

    bert-jax pretrain configs/experiments/three_layers.py --workdir runs/three_layers \
      --data.source "text:corpus/*.txt.gz"

The weights begin a little smaller, too. All else is as in configs/experiments/modern.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/modern")
config = base.replace(
    model=base.model.replace(num_layers=3, hidden_size=192, num_heads=6, feedforward_size=512, initializer_range=0.05),
    optimizer=base.optimizer.replace(peak_learning_rate=1.5e-3),
)
