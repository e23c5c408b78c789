"""Experiment: rotary positions, norms before the sublayers, a gated feed-forward part and no biases, as ModernBERT.

    bert-jax pretrain configs/experiments/modern.py --workdir runs/modern --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/full_sentences.py. The gated part is two thirds as wide, so that it has as many
parameters as the dense one.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/full_sentences")
config = base.replace(
    model=base.model.replace(positions="rotary", norm="pre", feedforward="gated", feedforward_size=344, biases=False)
)
