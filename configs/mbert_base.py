"""Multilingual BERT-base: one cased vocabulary of 119,547 pieces for 104 languages.

The published recipe of BERT-base on the 104 largest Wikipedias, with shares proportional to size^0.7. Sources and
languages come from a file, a [[source]] table with source and language for each.

    bert-jax pretrain configs/mbert_base.py --workdir runs/mbert --data.source @sources.toml

Hardware and time: the run is 2.5e19 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak 18 hours, and in
proportion on other chips. That is arithmetic, not a measurement.

What to expect: the published model for 102 languages without case, fine-tuned on English XNLI alone, reaches 81.4 in
English, 74.3 in Spanish and 63.8 in Chinese (its README). The vocabulary here keeps case and accents, as that of the
later published model does.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig

config = RunConfig(
    model=ModelConfig.base(),
    vocabulary=VocabularyConfig(size=119_547, lowercase=False),
    data=DataConfig(source="text:wikipedia/*.txt.gz", smoothing=0.7),
)
