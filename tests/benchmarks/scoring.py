"""How fast texts are scored, beside minicons: sentences a second and their ratio, and the largest difference of scores.

    pip install minicons
    python tests/benchmarks/scoring.py --model RUN --pairs pairs.jsonl

Both score the sentences of the pairs by the model of RUN, which is exported from here. minicons' MaskedLMScorer takes
them in the order of the file, in batches of `--batch-size` sentences with all their masked copies. Each works in a
process of its own and they take turns, so that the ratio holds beside whatever else the machine does. Compiling is not
counted.
"""

import itertools
import time
from collections import Counter
from typing import Any, Literal

from turns import at_work, exported, start, take_turns

from bert_jax.cli.arguments import Arguments

MANUAL = __doc__
"""Text of --help; `__doc__` within a class is that of the class."""


class Options(Arguments):
    """What is measured."""

    LINE = "python tests/benchmarks/scoring.py"
    TEXT = MANUAL

    model: str
    """A run; to the sides, its export, which both read."""
    pairs: tuple[str, ...]
    """Files of pairs whose sentences are scored."""
    count: int = 200
    """Pairs that are scored, the first of each file in turn."""
    method: Literal["token", "word"] = "token"
    """What is masked."""
    batch_size: int = 8
    """Sentences that minicons takes at once."""
    rounds: int = 3
    """Turns of each."""

    @property
    def sentences(self) -> list[str]:
        """The sentences of the pairs."""
        from bert_jax.inference.pair_files import pair_files, read_pairs

        files = [
            read_pairs({name: path}, ("sentence_good", "sentence_bad"), (), Counter())
            for name, path in pair_files(self.pairs).items()
        ]
        in_turn = itertools.chain.from_iterable(itertools.zip_longest(*files))
        chosen = itertools.islice(filter(None, in_turn), self.count)
        return [text for pair in chosen for text in (pair.good, pair.bad)]


class Side:
    """One program that scores the sentences."""

    def __init__(self, options: Options):
        self._options, self._sentences = options, options.sentences
        self._found: list[float] = []

    def warm_up(self) -> dict[str, Any]:
        """Compiles; returns the number of sentences."""
        self.score()
        return {"sentences": len(self._sentences)}

    def score(self) -> float:
        """Seconds of one pass over all sentences."""
        begin = time.perf_counter()
        self._found = self.of_all()
        return time.perf_counter() - begin

    def scores(self) -> list[float]:
        """The scores of the last pass."""
        return self._found

    def of_all(self) -> list[float]:
        """Scores all sentences."""
        raise NotImplementedError


class Ours(Side):
    """bert_jax."""

    def __init__(self, options: Options):
        import bert_jax
        from bert_jax.system.machine import keep_freed_memory

        super().__init__(options)
        keep_freed_memory()  # as the command bert-jax does for itself
        self._bert = bert_jax.load(options.model)

    def of_all(self) -> list[float]:
        """Scores all sentences."""
        return self._bert.score(self._sentences, self._options.method)


class Theirs(Side):
    """minicons."""

    def __init__(self, options: Options):
        import transformers
        from minicons import scorer

        if not hasattr(transformers.PreTrainedTokenizerBase, "batch_encode_plus"):  # minicons 0.3.39 needs it
            transformers.PreTrainedTokenizerBase.batch_encode_plus = transformers.PreTrainedTokenizerBase.__call__
        super().__init__(options)
        self._metric = {"token": "original", "word": "within_word_l2r"}[options.method]
        self._scorer = scorer.MaskedLMScorer(options.model, "cpu")

    def of_all(self) -> list[float]:
        """Scores all sentences."""
        found, size = [], self._options.batch_size
        for begin in range(0, len(self._sentences), size):
            some = self._sentences[begin : begin + size]
            found += self._scorer.sequence_score(some, lambda logs: logs.sum(0).item(), PLL_metric=self._metric)
        return found


SIDES = {"ours": Ours, "theirs": Theirs}


def compare(options: Options) -> None:
    """Takes turns, and prints the rates and the largest difference."""
    with (
        exported(options.model) as model,
        at_work(__file__, SIDES, options.model_copy(update={"model": model})) as sides,
    ):
        take_turns(sides, "score", 2 * options.count, options.rounds, "sentences/s")
        ours, theirs = (side.do("scores") for side in sides.values())
        print(f"largest difference of scores: {max(abs(a - b) for a, b in zip(ours, theirs)):.1e}")


if __name__ == "__main__":
    start(SIDES, Options, compare)
