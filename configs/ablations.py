"""Three configs that differ only in the pretraining objective.

    bert-jax pretrain ablations/mlm_nsp --workdir runs/mlm_nsp --data.source "text:corpus/*.txt.gz"

Text, vocabulary, model, optimizer and steps are the same. Compare the models after fine-tuning, with one that wasn't
pretrained: their pretraining losses measure different objectives.

Hardware and time: on one of two CPU cores, with the next run on the other, 9 to 14 minutes; gpt_ltr, which predicts at
every position, takes 2.7 times the FLOPs and took 21 minutes. A run reads 12 million tokens, seven tenths of 48 MB of
Wikipedia. The vocabulary is small because the model must learn its pieces first, and sees little text: with 8,192
pieces its loss was still that of the piece frequencies after 3,000 steps.
What to expect: the docs have the results of three seeds of each config, and of fine-tuning them. At full size (Devlin
et al. 2019, table 5) BERT-base loses 3.5 points on QNLI and 0.5 on MNLI without next sentence prediction, and 4.1 and
2.3 if it also reads from left to right.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

mlm_nsp = RunConfig(
    model=ModelConfig(
        num_layers=2,
        hidden_size=128,
        num_heads=4,
        positions="sinusoidal",
        dropout=0.0,
        attention_dropout=0.0,
        initializer_range=0.06,
    ),
    vocabulary=VocabularyConfig(size=4096),
    data=DataConfig(source="python-docs", held_out=0.05, short_sequence_probability=0.0),
    optimizer=OptimizerConfig(
        peak_learning_rate=2e-3,
        warmup=0.045,
        schedule="warmup_stable_decay",
        decay_share=0.3,
        bias_correction=True,
        beta2=0.98,
        epsilon=1e-8,
        weight_decay=0.1,
    ),
    phases=(Phase(steps=3000, length=64, batch_size=64),),
    evaluation=EvaluationConfig(every=1000, max_sequences=1024),
    checkpoints=CheckpointConfig(every=1000),
)
_TABLE = {
    "mlm_nsp": ("masked words and next sentences, as BERT.", mlm_nsp),
    "mlm": ("masked words alone.", mlm_nsp.change(objective={"pair": "none"})),
    "gpt_ltr": (
        "each next token from those before it, as GPT.",
        mlm_nsp.change(model={"causal": True}, objective={"predict": "next", "pair": "none"}),
    ),
}


def _text(name: str, summary: str) -> str:
    command = f'bert-jax pretrain ablations/{name} --workdir runs/{name} --data.source "text:corpus/*.txt.gz"'
    return f"Ablation of pretraining: {summary}\n\n    {command}\n"


RECIPES = {name: (_text(name, summary), config) for name, (summary, config) in _TABLE.items()}
