"""Settings of the training text and of its vocabulary, and the formats of files that records are read from."""

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, WrapValidator

from bert_jax.config.language import Languages
from bert_jax.config.settings import OneOrSeveral, Settings
from bert_jax.config.wording import OneOf, counted
from bert_jax.system.errors import Setting

SMALLEST_SHARE = 0.0001
"""Smallest share of the training sequences that a source may have."""
_TOKENS_A_SEQUENCE = 32
"""The tokens of a packed row, divided by this number, are the most sequences that it may hold. With a smaller number,
rows hold more sequences and need more prediction slots; with a larger one, there is more padding."""

CURATION = ("deduplicate", "drop_boilerplate", "min_doc_words", "max_symbol_word_ratio", "language_filter")
"""Settings by which documents and lines are dropped."""


class RecordedCode(str):
    """The name of a function, read from a run's config.json. The function is never imported: a run's files are data."""

    @property
    def refusal(self) -> str:
        """The error message for an operation that needs the function."""
        return (
            f"the words of the text are found by the function {self}, which only the run's config.json names, and "
            "no code is run because a file of a run names it; if you trust it, add "
            f"{Setting('data.words', shlex.quote(self))}"
        )


def _still_recorded(value: Any, validate: Callable[[Any], str]) -> str:
    """Validates `value` and keeps it a RecordedCode, where pydantic would make it a plain string."""
    validated = validate(value)
    return value if isinstance(value, RecordedCode) else validated


class DataConfig(Settings):
    """The corpus, and how it is cut into sequences (the original's create_pretraining_data.py)."""

    PREFIX: ClassVar[str] = "--data."
    source: OneOrSeveral = ("python-docs",)
    """One or more sources of text: `python-docs` (the docstrings of the installed Python and its packages), `text:GLOB`
    or `jsonl:GLOB#FIELD` (plain, .gz or .zst), `parquet:GLOB#FIELD`, `tfds:NAME/CONFIG:SPLIT#FEATURE`,
    `hf:NAME/CONFIG:SPLIT#FIELD`, or a path or pattern, with the format found from the suffix of the file (FIELD is
    `text` unless given). On a command line also @FILE, a TOML file of [[source]] tables with source, language and
    weight."""
    weights: tuple[Annotated[float, Field(gt=0.0)], ...] | None = None
    """Share of the training sequences (with `packed`, of the rows) that is drawn from each source, as proportional
    numbers. Small sources are then repeated more often than large ones. None: by `smoothing`."""
    smoothing: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """The shares of the sources are proportional to size^s, and this is s: 1 gives shares by size, 0.7 those of
    multilingual BERT, 0 equal shares. The size is the number of training sequences; for training the vocabulary it is
    the number of bytes. `weights` take precedence. None: every sequence of every source once an epoch."""
    most_epochs: Annotated[float, Field(gt=0.0)] | None = None
    """Maximum number of times that the training may see each sequence of a source, on average. Shares that exceed it
    are refused. None: no limit."""
    layout: Literal["paragraphs", "sentences"] = "paragraphs"
    """Meaning of a line of text. In both cases a blank line of a text file, or the end of a record, ends a document."""
    language: Languages = ("en",)
    """Language for splitting paragraphs into sentences, as a code (en, zh, pt-BR) or an English name: one for all
    sources, or one for each."""
    words: (
        Annotated[
            str,
            Field(pattern=r"^(jieba|sudachi|[\w.]+:\w+)$", examples=["jieba, sudachi or module:function"]),
            WrapValidator(_still_recorded),
        ]
        | None
    ) = None
    """What finds the words that masking may take together: jieba, for Chinese (extra zh); sudachi, for Japanese (extra
    ja); or module:function, a function that returns the word boundaries of a text as offsets in characters. None: the
    tokenizer's marks of words; in scripts without spaces each piece is then a word. A module is imported only if the
    command line or a Python config names it. If CONFIG is a run, give the flag again."""
    phrases: str | None = None
    """File of phrases, one a line. Masking by phrase takes all tokens of such a phrase together."""
    entities: str | None = None
    """File of names of entities, one a line. Masking by entity takes all tokens of such a name together."""
    spans: str | None = None
    """Field of JSON lines, beside that of the text, with the places of phrases and entities in it: a list of [begin,
    end, kind]: offsets in characters (code points), and phrase or entity. An occurrence of an entry of `phrases` or
    `entities` that overlaps such a place is ignored."""
    undecodable: Literal["replace", "refuse"] = "replace"
    """Bytes that are not UTF-8: replace them by U+FFFD and count them, or refuse them with file and line."""
    deduplicate: Literal["exact", "near"] | None = None
    """Drops copies of documents: equal ones, or also those that share about half or more of their sequences of five
    words (near; extra deduplicate). If several documents have the same paragraph of 64 characters or more, only the
    first of them keeps it. data/curation/dropped.jsonl of the run lists the dropped documents."""
    drop_boilerplate: bool = False
    """Drop lines that are in more than 1,000 documents, or in at least 10 that are more than 1% of all."""
    min_doc_words: Annotated[int, Field(ge=0)] = 0
    """Drop documents of fewer words. In scripts without spaces between words each character is a word."""
    max_symbol_word_ratio: Annotated[float, Field(ge=0.0)] | None = None
    """Drop documents with more hash signs and ellipses per word than this (Gopher: 0.1). None: drop none."""
    language_filter: bool = False
    """Drop documents in another language than data.language, which must be one that can be identified."""
    held_out: Annotated[float, Field(ge=0.0, le=0.5)] = 0.01
    """Share of the documents, chosen by a hash of their text, that is held out for evaluation. With too few documents
    to hold one out: the end of each document."""
    short_sequence_probability: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of documents (of sequences if objective.pair is none) that are cut to a random shorter length, so that the
    model also trains on short input."""
    dupe_factor: Annotated[int, Field(gt=0)] = 1
    """How many times each training document is cut into sequences, each time with other pairs and random segments.
    Masks are always drawn anew in every epoch."""
    across_documents: bool = True
    """Whether a sequence of whole sentences (objective.pair none) goes on in the next document after a [SEP], as in
    RoBERTa. Otherwise it ends with its document and attends to no other; data.packed then fills the rows."""
    whole_sentences: bool = True
    """Whether a sequence without pairs (objective.pair none) ends with a sentence, as in RoBERTa; about a fifth of a
    row of 64 tokens is then padding. Otherwise a sequence is cut when it is full, and the next one continues from
    there; this holds for held-out text too. Padding is then left only by short sequences and, with
    across_documents=False, by the ends of documents."""
    packed: bool = False
    """Whether a training row holds several sequences if they fit, so that hardly any padding is left. Each sequence has
    its own [CLS], positions and attention. A batch then has as many rows as before and more sequences."""
    chunk_megabytes: Annotated[float, Field(gt=0.0, le=256.0)] = 8.0
    """Megabytes of text in a chunk, the unit of preparation. Random second segments come from the same chunk."""

    def _conflicts(self) -> Iterator[str]:
        count, sources, weights = len(self.source), counted(len(self.source), "sources"), self._flag("weights")
        if len(set(self.source)) < count:
            yield f"{self._current('source')} names a source twice; use {weights} to see it more"
        if self.weights is not None and len(self.weights) != count:
            yield f"{weights} has {counted(len(self.weights), 'numbers')} for {sources}; give one for each"
        if len(self.language) not in (1, count):
            yield (
                f"{self._flag('language')} has {len(self.language)} codes for {sources}; give one for all or one for "
                "each"
            )
        if self.weights and (least := min(self.weights) / sum(self.weights)) < SMALLEST_SHARE:
            yield f"{weights} gives a source {least:.2g} of the sequences; give each {SMALLEST_SHARE} or more"

    @property
    def chunk_bytes(self) -> int:
        """`chunk_megabytes` in bytes."""
        return int(self.chunk_megabytes * 1e6)

    @property
    def compares_lines(self) -> bool:
        """Whether lines of different documents are compared."""
        return self.deduplicate is not None or self.drop_boilerplate

    @property
    def is_curated(self) -> bool:
        """Whether documents or lines may be dropped."""
        return self.uncurated() != self

    def uncurated(self) -> "DataConfig":
        """These settings with no document and no line dropped."""
        return self.replace(**{name: type(self).model_fields[name].default for name in CURATION})

    @property
    def has_shares(self) -> bool:
        """Whether sources are drawn by shares from `weights` or `smoothing`, not every sequence once an epoch."""
        return len(self.source) > 1 and (self.weights is not None or self.smoothing is not None)

    def sequences_a_row(self, length: int) -> int:
        """The most sequences that a row of `length` tokens holds."""
        return max(2, length // _TOKENS_A_SEQUENCE) if self.packed else 1

    def shares(
        self, sizes: Sequence[float], smoothing: float | None = None, languages: Collection[str] | None = None
    ) -> tuple[float, ...]:
        """The share of each source in the drawn sequences. The sum is 1. `sizes`: the size of each source. `smoothing`
        replaces the setting unless it is None. Sources in other languages than `languages` get no share."""
        smoothing = self.smoothing if smoothing is None else smoothing
        exponent = 1.0 if smoothing is None else smoothing
        parts = self.weights or tuple(size**exponent if size else 0.0 for size in sizes)
        drawn = [
            part if languages is None or language in languages else 0.0
            for part, language in zip(parts, self.languages, strict=True)
        ]
        total = sum(drawn) or 1.0
        return tuple(part / total for part in drawn)

    @property
    def languages(self) -> tuple[str, ...]:
        """The language of each source."""
        return self.language if len(self.language) > 1 else self.language * len(self.source)

    @property
    def lexicons(self) -> dict[str, str]:
        """The files of phrases and entities, by the setting that names them."""
        named = {"phrases": self.phrases, "entities": self.entities}
        return {name: path for name, path in named.items() if path is not None}

    @property
    def described(self) -> str:
        """The sources as the setting `data.source`, for messages."""
        return Setting("data.source", tuple(map(repr, self.source)))


UnicodeForm = Literal["NFC", "NFKC"]
Accents = bool | Literal["cased"]
"""Which marks (category Mn) are dropped: all, none, or those of scripts that have case."""
MIN_BYTE_BPE_SIZE = 5 + 256
"""Smallest vocabulary of a byte-level BPE, which merges no pairs: the five special pieces and the 256 bytes."""


InitialRows = Literal["pursuit", "mixture", "mean", "random"]
"""How the rows of pieces that a trained model lacks are initialised."""


class VocabularyConfig(Settings):
    """The vocabulary: trained on the corpus, or read from a file."""

    PREFIX: ClassVar[str] = "--vocabulary."
    file: str | None = None
    """A vocab.txt (one piece on each line), a sentencepiece .model, a tokenizer.json, or a vocab.json with a merges.txt
    beside it. The file is used unchanged. With a vocab.txt, `lowercase` and `strip_accents` decide how text is cleaned;
    the other files have their own rules. None: train a vocabulary on the corpus."""
    kind: Literal["wordpiece", "unigram", "bpe", "byte_bpe"] = "wordpiece"
    """Kind of a trained vocabulary: BERT's WordPiece, one of sentencepiece's models, or byte-level BPE, as in RoBERTa,
    which has no unknown text. Refused with `file`."""
    size: Annotated[int, Field(gt=5, le=1 << 24)] = 30_522
    """Pieces of a trained vocabulary, the five special ones included. Refused with `file`."""
    lowercase: bool = True
    """Lower-case the text before it is split; by Turkish rules if a vocabulary is trained on Turkish or Azeri alone. A
    WordPiece vocabulary trained on text with hardly any capitals is lower-cased even if this is False."""
    strip_accents: Accents | None = None
    """Drop accents: all marks (true), as in BERT (NFD, then category Mn), or those of scripts that have case (cased:
    Latin, Greek, Cyrillic), since in others marks spell vowels and consonants, as in Hindi and Japanese. None: with
    `lowercase`, true for a vocab.txt and cased for a trained vocabulary; without it, false."""
    unicode_form: UnicodeForm | None = None
    """Unicode's normal form of the cleaned text, in which Hangul syllables are whole. None: NFC for a trained
    vocabulary (with `kind` byte_bpe only where accents are dropped); for a vocab.txt the original BERT's cleaning,
    which has no form and drops the joiners that Persian and Sinhala are spelled with."""
    character_coverage: Annotated[float, Field(gt=0.9, le=1.0)] = 0.9999
    """Share of the text's characters that a trained vocabulary has as pieces. Rarer characters become [UNK]. With
    `kind` byte_bpe all characters are covered."""
    sample_megabytes: Annotated[int, Field(gt=0)] = 256
    """Maximum text, in megabytes, that a vocabulary is trained on: a uniform sample of the documents, held in memory;
    with `data.weights`, each source gets its share."""
    exchange: bool = False
    """With `init`: replace the model's vocabulary by this one, trained or read from `file`. Pieces that are in both
    vocabularies, even if these are of different kinds, keep their rows of the word table and of the output. Without it
    the model's vocabulary is used, which `file` may extend. A command that sets `size` or `kind` beside `init` turns it
    on."""
    initial_rows: InitialRows = "pursuit"
    """Initial rows of the pieces that the model lacks, if its vocabulary is exchanged. The added pieces of an extended
    vocabulary always begin as `mean`.

    - pursuit: a weighted sum of the rows of at most 16 shared pieces. The weights are those with which the static
      vectors of these pieces, trained on the text, best approximate the piece's own (orthogonal matching pursuit,
      Goddard and Fernandes Neto 2025).
    - mixture: a sparse mean of the rows of shared pieces, weighted by the similarity of their static vectors to the
      piece's (FOCUS, Dobler and de Melo 2023).
    - mean: the mean of the rows of the model's pieces that spell the piece. Pieces that don't occur in the text, and
      those of an extended vocabulary, always get this mean.
    - random: drawn with the mean and the variance of the model's rows."""

    def _conflicts(self) -> Iterator[str]:
        if self.kind in ("unigram", "bpe") and self.character_coverage < 0.98:
            yield (
                f"{self._current('character_coverage')} is less than the 0.98 that sentencepiece wants for "
                f"{self._current('kind')}; raise it, or choose {self._flag('kind', 'wordpiece')}"
            )
        if self.kind == "byte_bpe" and not self.file and self.size < MIN_BYTE_BPE_SIZE:
            yield (
                f"{self._current('size')} is less than the {MIN_BYTE_BPE_SIZE} special pieces and bytes of "
                f"{self._current('kind')}; raise it"
            )


BLANK_LINE, LINE_END = re.compile(rb"\n[ \t\r]*\n|\n(?=<doc )"), re.compile(rb"\n")
"""The end of a document in a text file, and of a record in JSON lines."""


class Format(NamedTuple):
    """A format of files, plain or compressed."""

    suffixes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Those of the settings `task.columns` and `task.separator` that apply to the format. Other formats name their own
    columns."""
    separator: re.Pattern[bytes] | None = None
    """The end of a document; None if reading from the middle of a file can't find an end."""


FORMATS = {
    "csv": Format((".csv",), ("columns", "separator")),
    "tsv": Format((".tsv", ".txt"), ("columns", "separator")),
    "jsonl": Format((".jsonl", ".ndjson"), separator=LINE_END),
    "conll": Format((".conll", ".bio", ".bmes"), ("columns",)),
    "conllu": Format((".conllu",)),
    "squad": Format((".json",)),
    "text": Format(settings=("columns",), separator=BLANK_LINE),
    "parquet": Format((".parquet",)),
}
FileFormat = Annotated[str, OneOf(tuple(FORMATS))]
"""The name of a format of rows."""
