"""BERT-base for Chinese: each character is a piece.

The published recipe of BERT-base (Devlin et al. 2019) on Chinese text, whose model has a vocabulary of 21,128 pieces.

    bert-jax pretrain configs/bert_zh_base.py --workdir runs/bert_zh --data.source "text:zh/*.txt.gz"

Hardware and time: the run is 2.2e19 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak 16 hours, and in
proportion on other chips. That is arithmetic, not a measurement.

What to expect: the published checkpoint for Chinese reaches 77.2 on XNLI's Chinese test set and 94.3 on ChnSentiCorp
(Sun et al. 2019, table 1).
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig

config = RunConfig(
    model=ModelConfig.base(),
    vocabulary=VocabularyConfig(size=21_128),
    data=DataConfig(source="text:zh/*.txt.gz", language="zh"),
)
