"""Settings of the vocabulary."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bert_jax.config.settings import Settings

UnicodeForm = Literal["NFC", "NFKC"]
Accents = bool | Literal["cased"]
"""Which marks (category Mn) are dropped: all, none, or those of scripts that have case."""
MIN_BYTE_BPE_SIZE = 5 + 256
"""Smallest vocabulary of a byte-level BPE, which merges no pairs: the five special pieces and the 256 bytes."""


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
    """Lower-case the text before it is split; by Turkish rules if a vocabulary is trained on Turkish or Azeri alone."""
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
