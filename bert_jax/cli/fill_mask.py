"""bert-jax fill-mask RUN TEXT: prints the most probable pieces for each [MASK]."""

from bert_jax.cli.arguments import InferenceArguments, RunArgument
from bert_jax.cli.flags import Positional
from bert_jax.system.errors import UsageError


class FillMask(InferenceArguments):
    """The most probable pieces for each [MASK] of a text."""

    LINE = "bert-jax fill-mask"

    run: RunArgument
    """A run, or one of its checkpoints."""
    text: Positional[str]
    """Text with one [MASK] or several."""
    top: int = 5
    """Pieces to show for each [MASK]."""
    together: bool = False
    """Fill all [MASK] together, ranked by joint probability."""
    candidates: tuple[str, ...] | None = None
    """Words, of one piece or several: show the probability of each in place of the one [MASK]."""

    def execute(self) -> None:
        from bert_jax.system.figures import print_rows

        if self.candidates is not None and not self.candidates:
            raise UsageError("--candidates names no word; give some, or leave it out")
        if self.candidates and self.together:
            raise UsageError("--candidates stand in place of one [MASK], and --together fills several; leave one out")
        bert = self.loaded(self.run, self.dtype)
        if self.candidates:
            ranked = sorted(bert.candidates(self.text, self.candidates), key=lambda fill: -fill[1])
            print_rows("", ("word", ">probability"), [(word, f"{value:.3g}") for word, value in ranked])
            return
        if self.together:
            rows = [(*pieces, f"{joint:.3g}") for pieces, joint in bert.fill_together(self.text, self.top)]
            masks = [f"[MASK] {number}" for number in range(1, len(rows[0]))]
            print_rows("", (*masks, ">joint probability"), rows)
            return
        for number, fills in enumerate(bert.fill_mask(self.text, self.top), 1):
            rows = [(piece, f"{probability:.3f}") for piece, probability in fills]
            print_rows(f"[MASK] {number}", ("piece", ">probability"), rows)
