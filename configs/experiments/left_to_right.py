"""Experiment: each next token from those before it, as GPT; the first half of left_to_right_then_masked.

    bert-jax pretrain configs/experiments/left_to_right.py --workdir runs/left_to_right \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/full_sentences.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/full_sentences")
config = base.replace(model=base.model.replace(causal=True), objective=base.objective.replace(predict="next"))
