"""ELMo as published: 94 million parameters, most of them in LSTM layers 4,096 wide (Peters et al. 2018).

    bert-jax pretrain configs/elmo.py --workdir runs/elmo --data.source "text:corpus/*.txt"

A convolution over the bytes of each token (Kim et al. 2016) takes the place of the word table, and two LSTM layers a
direction are over it; each direction's vectors are 512 wide. The original read the one-billion-word benchmark ten times
over, word by word, and predicted 793,471 words by a sampled softmax. Here tokens are the pieces of a vocabulary of
30,522, which are predicted by a whole softmax, and sequences end with their text: state isn't carried over to the next.

Hardware and time: the published run took three GTX 1080 some two weeks for ten epochs; bert-jax plan estimates the time
on TPUs.
What to expect: the original's perplexity of 39.7, the mean of both directions, is over words and not over pieces.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        layer="lstm",
        num_layers=2,
        hidden_size=1024,
        feedforward_size=4096,
        max_positions=512,
        positions="none",
        num_segments=0,
        character_filters=(32, 32, 64, 128, 256, 512, 1024),
        dropout=0.1,
    ),
    data=DataConfig(short_sequence_probability=0.0),
    objective=ObjectiveConfig(predict="both", pair="none"),
    optimizer=OptimizerConfig(peak_learning_rate=1e-3, bias_correction=True, weight_decay=0.0),
    phases=(Phase(steps=500_000, length=128, batch_size=128),),
)
