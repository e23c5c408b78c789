"""bert-jax search RUN CORPUS QUERY: the texts whose vectors are most similar to that of a query."""

from typing import Annotated

from pydantic import Field

from bert_jax.cli.arguments import InferenceArguments, JsonArguments, RunArgument
from bert_jax.cli.flags import Positional
from bert_jax.interchange.model_path import local_place

_SHOWN = 200
"""Characters of a text in a table; --json prints whole texts."""


class Search(InferenceArguments, JsonArguments):
    """The texts of a corpus whose vectors have the highest cosines to that of a query. The search is exact: it compares
    every text, and reads the corpus in memory that doesn't grow with it. To search a corpus more than once, write its
    vectors by bert-jax features first.
    """

    LINE = "bert-jax search"

    run: RunArgument
    """A run of bert-jax finetune vectors, one of its checkpoints, or a Hugging Face directory. Any other model works
    too, less well, and a line says so."""
    corpus: Positional[str]
    """One text on each line: a file, plain, .gz or .zst, or - for standard input. With --texts: a .csv, .tsv or .jsonl,
    also compressed, a .parquet, or a data set. Or a .npz of vectors that bert-jax features wrote with the same run."""
    query: Positional[Annotated[tuple[str, ...], Field(min_length=1)]]
    """Text to search for, or several, each in quotes."""
    top: Annotated[int, Field(gt=0)] = 10
    """Most similar texts to print for each query."""
    width: Annotated[int, Field(gt=0)] | None = None
    """Compare only this many components of each vector, from the first. Without it: all."""
    texts: tuple[str, ...] = ()
    """Columns that hold the texts: one, or two for pairs. Without it: each line is a text."""
    lines: str | None = None
    """The file from which the vectors of a .npz were computed, to print its texts. Without it: row numbers alone."""

    def execute(self) -> None:
        local_place(self.run)  # before JAX is imported
        from bert_jax.inference.search import SearchCorpus, search
        from bert_jax.system.figures import json_line, print_rows
        from bert_jax.system.progress import stage

        corpus = SearchCorpus(self.corpus, self.texts, self.lines)
        bert = self.loaded(self.run, self.dtype)
        with stage("search", corpus.size, "texts") as progress_bar:
            found = search(bert.embedder, self.query, corpus, self.top, self.width, progress_bar.advance)
        for query, hits in zip(self.query, found, strict=True):
            if self.json:
                ranked = [{"rank": rank, **hit._asdict()} for rank, hit in enumerate(hits, 1)]
                print(json_line({"query": query, "hits": ranked}))
                continue
            rows = [
                {">rank": f"{rank}", ">score": f"{hit.score:.4f}", ">row": f"{hit.row:,}"}
                | ({"id": _cell(hit.id)} if any(other.id for other in hits) else {})
                | ({} if hit.text is None else {"text": _cell(hit.text)})
                for rank, hit in enumerate(hits, 1)
            ]
            print_rows(_cell(query), list(rows[0]), [list(row.values()) for row in rows])


def _cell(text: str | tuple[str, ...]) -> str:
    """The beginning of a text or a pair on one line, with escapes such as \\n."""
    from bert_jax.system.errors import on_one_line, shortened

    joined = text if isinstance(text, str) else " | ".join(text)
    return on_one_line(shortened(joined, _SHOWN))
