"""What two CPU cores learn of English grammar from ten million words in two hours: BabyLM's small track.

    bert-jax pretrain configs/babylm.py --workdir runs/babylm --data.source "text:train/*.gz"
    bert-jax score runs/babylm --pairs "blimp/*.jsonl"

The text is that of BabyLM (babylm.github.io): files with a sentence on each line. A training that would see it more
than ten times is refused, and checkpoints are kept after 1, 2, ... 10 and 20, 30, ... 100 million words, which are
split at blanks and count each time that they are seen.

Hardware and time: 259 minutes of processor time on two cores of an AMD EPYC (Zen 4), in bfloat16: a little over two
hours if they do nothing else. It sees 32 million words, 3.3 passes.
What to expect: on a similar text 68.6 on BLiMP, and 64.2 for the short run below (docs/results.md).
docs/experiments.md has the comparisons that chose the recipe.

31 minutes of processor time on an AMD EPYC (Zen 4), and 64.2 on BLiMP (three seeds, from 63.9 to 64.8). AdamW at
1.5e-3 took 34 minutes for 5,000 steps, 19 of elapsed time on two idle cores, and reached 63.2 (three seeds, from 62.1
to 63.8):

    --model.hidden-size 192 --model.num-heads 3 --model.feedforward-size 512
    --optimizer.name muon --optimizer.peak-learning-rate 4e-3 --phases.0.steps 4000

A masked model, whose step takes two thirds of the time:

    --model.no-causal --objective.predict masked --phases.0.steps 39000

30 million parameters for a GPU, about nine passes (2.6e16 FLOPs by formula, minutes of an H100; nobody has measured
it):

    --model.num-layers 12 --model.hidden-size 384 --model.num-heads 6 --model.feedforward-size 1152
    --vocabulary.size 16384 --phases.0.steps 8500 --phases.0.length 128 --phases.0.batch-size 128
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

MILLION = 1_000_000

config = RunConfig(
    model=ModelConfig.modern(
        num_layers=4,
        hidden_size=256,
        num_heads=4,
        feedforward_size=688,
        max_positions=128,
        causal=True,
        rotary_base=10_000.0,
        local_window=None,
        global_every=1,
        activation="gelu_tanh",
        initializer_range=0.05,
    ),
    vocabulary=VocabularyConfig(size=8192),
    data=DataConfig(
        source="text:train/*.gz",
        layout="sentences",
        most_epochs=10.0,
        short_sequence_probability=0.5,
        packed=True,
    ),
    # The shares are those of --objective.predict masked.
    objective=ObjectiveConfig(predict="next", pair="none", masked_share=0.3, masked_share_end=0.15),
    optimizer=OptimizerConfig(
        peak_learning_rate=1e-3,
        warmup=0.02,
        schedule="warmup_stable_decay",
        decay_share=0.5,
        bias_correction=True,
        beta2=0.98,
        epsilon=1e-8,
        weight_decay=0.1,
    ),
    phases=(Phase(steps=26_000, length=64, batch_size=32),),
    evaluation=EvaluationConfig(every=5000, max_sequences=1024),
    # BabyLM asks for models after 1, 2, ... 10 and 20, 30, ... 100 million words seen.
    checkpoints=CheckpointConfig(
        every=1000,
        keep_at_words=(*range(MILLION, 10 * MILLION, MILLION), *range(10 * MILLION, 101 * MILLION, 10 * MILLION)),
    ),
)
