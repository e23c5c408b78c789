"""bert-jax pretrain CONFIG.py --workdir RUN: the whole main job."""

import jax

from bert_jax.cli.arguments import RunArguments, parse_config
from bert_jax.cli.summary import print_examples, print_results
from bert_jax.cli.supervision import supervise
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.training.hosts import connect, ending_together, is_first, several
from bert_jax.training.run_directory import RunDirectory


def run(arguments: list[str]) -> None:
    """Parses, trains, prints what came out."""
    asked = parse_config(RunArguments, "pretrain", "Text to a trained BERT in one command.", arguments)
    config, workdir = asked.config, asked.workdir
    directory = RunDirectory(workdir)
    if several(config.hosts):
        supervise()
        connect(config.hosts)
    with ending_together():
        results = pretrain(config, directory)
    if not is_first():
        return
    print_results(results)
    fills_masks = not config.model.causal
    if fills_masks and jax.process_count() == 1:  # the others would have to take part
        print_examples(directory, config)
    print(f"\nThe run is in {workdir}. To go on from here:")
    if fills_masks:
        print(f'  bert-jax fill-mask {workdir} "Return the [MASK] of the array."')
    print(f"  bert-jax inspect {workdir}")
    print(f"  bert-jax evaluate {workdir}")
    print(f"  python -c \"import bert_jax; print(bert_jax.load('{workdir}').encode(['some text']).pooled.shape)\"")
    if config.logging.tensorboard:
        print(f"  tensorboard --logdir {workdir}")
