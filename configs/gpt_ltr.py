"""The left-to-right twin of BERT-base: 12 layers of width 768 that predict each next token, as GPT.

BERT-base with causal attention and next-token prediction, to measure what attention to both sides is worth.

    bert-jax pretrain configs/gpt_ltr.py --workdir runs/gpt_ltr --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 2.9e19 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak 20 hours, and in
proportion on other chips. That is arithmetic, not a measurement.

What to expect: of two such models trained alike Devlin et al. (2019, table 5) report 82.1 on MNLI, 84.3 on QNLI, 77.5
on MRPC, 92.1 on SST-2 and 77.8 F1 on SQuAD for this one; 84.4, 88.4, 86.7, 92.7 and 88.5 for BERT-base. It encodes and
is fine-tuned as any other; it fills no masks and is not exported.

Logits at every position take the most memory, 16 GB in the second phase: --execution.accumulation 16 takes a sixteenth
of them. Over several devices, --mesh.fsdp N splits parameters and optimizer state too; neither changes the result.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig

config = RunConfig(
    model=ModelConfig.base(causal=True),
    data=DataConfig(source="text:corpus/*.txt.gz"),
    objective=ObjectiveConfig(predict="next", pair="none"),
)
