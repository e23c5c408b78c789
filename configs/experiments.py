"""Recipes for a small model and minutes of two CPU cores, compared by `bert-jax suite recipes`.

    bert-jax pretrain experiments/modern --workdir runs/modern --data.source "text:corpus/*.txt.gz"

`RECIPES` holds each by its name, with its description. A suite's budget sets the number of steps.
docs/experiments.md has the results.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

full_sentences = RunConfig(
    model=ModelConfig(
        num_layers=2,
        hidden_size=128,
        num_heads=4,
        max_positions=128,
        positions="sinusoidal",
        dropout=0.0,
        attention_dropout=0.0,
        initializer_range=0.06,
    ),
    vocabulary=VocabularyConfig(size=8192),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    objective=ObjectiveConfig(pair="none"),
    optimizer=OptimizerConfig(
        peak_learning_rate=3e-3,
        warmup=0.05,
        schedule="warmup_stable_decay",
        decay_share=0.5,
        bias_correction=True,
        beta2=0.98,
        epsilon=1e-8,
        weight_decay=0.1,
    ),
    phases=(Phase(steps=4000, length=64, batch_size=32),),
    evaluation=EvaluationConfig(every=2000),
    checkpoints=CheckpointConfig(every=1000),
)
# The gated layer is two thirds as wide as the dense one, so that both have as many parameters.
modern = full_sentences.change(
    model={"positions": "rotary", "norm": "pre", "feedforward": "gated", "feedforward_size": 344, "biases": False}
)

# At a constant rate every step ends a run, so that one run is measured at several budgets. The models have equally many
# parameters outside the word table, and all read the same sequences, [CLS] first.
contrast = full_sentences.change(optimizer={"decay_share": 1e-6})

zh_characters = modern.change(
    vocabulary={"size": 9000},
    data={"source": ("text:zh/*.txt.gz",), "language": ("zh",), "words": "jieba", "held_out": 0.02},
)

_TABLE = {
    "full_sentences": ("BERT's block, masked words alone on whole sentences.", full_sentences),
    "bert": (
        "full_sentences with next sentence prediction, as BERT.",
        full_sentences.change(objective={"pair": "next_sentence"}),
    ),
    "left_to_right": (
        "full_sentences that predicts each next token, as GPT; the first half of left_to_right_then_masked.",
        full_sentences.change(model={"causal": True}, objective={"predict": "next"}),
    ),
    "left_to_right_then_masked": (
        "full_sentences at a lower rate, from the parameters of left_to_right (--init).",
        full_sentences.change(optimizer={"peak_learning_rate": 2e-3}),
    ),
    "modern": ("full_sentences with ModernBERT's block: rotary positions, norms first, gates, no biases.", modern),
    "modern_masks": (
        "modern with 30% of the tokens masked at first and 15% at the end.",
        modern.change(objective={"masked_share": 0.3, "masked_share_end": 0.15}),
    ),
    "modern_muon": (
        "modern trained by Muon at twice the rate of AdamW.",
        modern.change(optimizer={"name": "muon", "peak_learning_rate": 6e-3}),
    ),
    "modern_lamb": (
        "modern trained by LAMB at a rate of 5e-3.",
        modern.change(optimizer={"name": "lamb", "peak_learning_rate": 5e-3}),
    ),
    "modern_electra": (
        "modern as ELECTRA: a discriminator, and a generator of half its width.",
        modern.change(
            model={"discriminator": True, "generator_divisor": 2},
            objective={"predict": "replaced", "mask_probability": 0.85, "random_probability": 0.0},
        ),
    ),
    "contrast_bert": ("full_sentences at a constant rate, to contrast four methods of pretraining.", contrast),
    "contrast_left_to_right": (
        "contrast_bert that predicts each next token, as GPT.",
        contrast.change(model={"causal": True}, objective={"predict": "next"}),
    ),
    "contrast_xlnet": (
        "contrast_bert that predicts tokens in random order, as XLNet.",
        contrast.change(
            model={"positions": "relative", "num_segments": 0, "feedforward_size": 480},
            objective={
                "predict": "permuted",
                "units": "context",
                "masked_share": 1 / 6,
                "evaluated_share": 1 / 6,
            },
        ),
    ),
    "contrast_elmo": (
        "contrast_bert with LSTM layers in two directions, as ELMo.",
        contrast.change(
            model={"layer": "lstm", "positions": "none", "num_segments": 0, "feedforward_size": 176},
            objective={"predict": "both"},
        ),
    ),
    "zh_characters": ("modern for Chinese text, in which each character is masked by itself.", zh_characters),
    "zh_words": (
        "zh_characters that masks all characters of a word together; jieba finds the words.",
        zh_characters.change(objective={"units": "word"}),
    ),
    "zh_stages": (
        "zh_characters in ERNIE's three stages: characters, words, and names listed in entities.txt.",
        zh_characters.change(data={"entities": "entities.txt"}).replace(
            phases=(
                Phase(steps=1600, length=64, batch_size=32),
                Phase(steps=1200, length=64, batch_size=32, units="word"),
                Phase(steps=1200, length=64, batch_size=32, units="entity"),
            )
        ),
    ),
}


def _text(name: str, summary: str) -> str:
    folder = "zh" if name.startswith("zh_") else "corpus"
    command = f'bert-jax pretrain experiments/{name} --workdir runs/{name} --data.source "text:{folder}/*.txt.gz"'
    return f"Experiment: {summary}\n\n    {command}\n"


RECIPES = {name: (_text(name, summary), config) for name, (summary, config) in _TABLE.items()}
