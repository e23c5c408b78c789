"""Experiment: three layers of width 192 with 30% of the tokens masked at first and 15% at the end.

    bert-jax pretrain configs/experiments/three_layers_masks.py --workdir runs/three_layers_masks \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/three_layers.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/three_layers")
config = base.replace(objective=base.objective.replace(masked_share=0.3, masked_share_end=0.15))
