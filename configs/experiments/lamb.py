"""Experiment: LAMB in place of AdamW, at a rate for matrices of this norm.

    bert-jax pretrain configs/experiments/lamb.py --workdir runs/lamb --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/full_sentences.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/full_sentences")
config = base.replace(optimizer=base.optimizer.replace(name="lamb", peak_learning_rate=2e-2))
