"""Experiment: four layers of width 256 on sequences of 128, with all of modern.py's block.

    bert-jax pretrain configs/experiments/four_layers_modern.py --workdir runs/four_layers_modern \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/four_layers.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/four_layers")
config = base.replace(
    model=base.model.replace(positions="rotary", norm="pre", feedforward="gated", feedforward_size=688, biases=False)
)
