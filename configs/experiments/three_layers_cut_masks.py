"""Experiment: full sequences as in three_layers_cut.py, masks as in three_layers_masks.py.

    bert-jax pretrain configs/experiments/three_layers_cut_masks.py --workdir runs/three_layers_cut_masks \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/three_layers_cut.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/three_layers_cut")
config = base.replace(objective=base.objective.replace(masked_share=0.3, masked_share_end=0.15))
