"""Paragraphs to sentences."""

import sentencex


def split_sentences(paragraph: str, language: str) -> list[str]:
    """Sentences of `paragraph`, stripped, none empty. `language` is a code like "en" or "zh"; rules of related
    languages stand in for one that sentencex doesn't know."""
    stripped = (sentence.strip() for sentence in sentencex.segment(language, paragraph))
    return [sentence for sentence in stripped if sentence]
