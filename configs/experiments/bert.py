"""Experiment: masked words and next sentences, as BERT.

    bert-jax pretrain configs/experiments/bert.py --workdir runs/bert --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/full_sentences.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/full_sentences")
config = base.replace(objective=base.objective.replace(pair="next_sentence"))
