"""Experiment: masked words in a model that has learned left_to_right for half of the time.

    bert-jax pretrain configs/experiments/left_to_right_then_masked.py --workdir runs/both --init runs/left_to_right \
      --data.source "text:corpus/*.txt.gz"

launch/experiments.py gives each half of the time. All else is as in configs/experiments/full_sentences.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/full_sentences")
config = base.replace(optimizer=base.optimizer.replace(peak_learning_rate=2e-3))
