"""Where the pieces come from."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bert_jax.config.settings import Settings


class VocabularyConfig(Settings):
    """The vocabulary: trained on the corpus, or a published one read as it is."""

    file: str | None = None
    """A vocab.txt (one piece a line), or a sentencepiece .model, which cleans text in its own way whatever is set
    here; used as it is. None trains one on the corpus."""
    kind: Literal["wordpiece", "unigram", "bpe"] = "wordpiece"
    """What is trained: BERT's WordPiece, or one of sentencepiece's models. Not used with `file`."""
    size: Annotated[int, Field(gt=5, le=1 << 24)] = 30_522
    """Pieces of a trained vocabulary, the five special ones included. Not used with `file`."""
    lowercase: bool = True
    """Lower-case the text before it is split."""
    strip_accents: bool | None = None
    """Drop accents (NFD, then category Mn); as `lowercase` where None, which is what BERT does."""
    character_coverage: Annotated[float, Field(gt=0.9, le=1.0)] = 0.9999
    """Share of the text's characters that a trained vocabulary holds as pieces; the rarest rest becomes [UNK]."""
    sample_megabytes: Annotated[int, Field(gt=0)] = 256
    """A trained vocabulary sees at most this much text: a uniform sample of the documents, held in memory;
    where `data.weights` are given, of each source its share."""

    @model_validator(mode="after")
    def _sentencepiece_covers_enough(self) -> "VocabularyConfig":
        if self.kind != "wordpiece" and self.character_coverage < 0.98:
            raise ValueError(
                f"vocabulary.character_coverage={self.character_coverage} is less than the 0.98 that sentencepiece "
                f"wants for vocabulary.kind={self.kind}; raise it, or choose vocabulary.kind=wordpiece"
            )
        return self
