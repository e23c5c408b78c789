"""Experiment: Muon in place of AdamW for the matrices of the blocks, at twice the rate.

    bert-jax pretrain configs/experiments/muon.py --workdir runs/muon --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/full_sentences.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/full_sentences")
config = base.replace(optimizer=base.optimizer.replace(name="muon", peak_learning_rate=6e-3))
