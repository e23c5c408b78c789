"""Describes how the text of a run was understood, from a brief sample of each source."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from bert_jax.config.data import DataConfig
from bert_jax.config.language import language_name
from bert_jax.config.wording import counted
from bert_jax.records.compressed_files import suffix
from bert_jax.records.corpus import Document, Mixture
from bert_jax.records.file_source import FileSource
from bert_jax.records.filters import are_same_language, is_identifiable
from bert_jax.records.line_kinds import Oddity, oddities
from bert_jax.records.python_docs import PythonDocs
from bert_jax.records.sample import SpreadSample, read_sample
from bert_jax.records.sources import RECORD_SUFFIXES
from bert_jax.system.reading import Fact, Reading
from bert_jax.text.identification import UNDETERMINED, UNSURE, blocks, identified
from bert_jax.text.merged_letters import merged_letters
from bert_jax.text.segmentation import split_sentences

_BYTES, _LEAST_BYTES = 1 << 20, 1 << 16
"""Bytes of text that are read from all sources together, and the fewest from each source."""
_CHARACTERS, _LEAST_CHARACTERS, _LINES_TOGETHER = 200_000, 20_000, 50
"""Characters to examine from all sources together, and the fewest from each source; lines in one group."""
_SPLIT_LINES, _BLOCKS = 100, 100
"""Number of lines split into sentences, and of blocks whose language is identified, over all sources."""
_MOST_SENTENCES, _MOST_OTHER = 1.5, 0.5
"""With layout `sentences`, the highest mean number of sentences in a line; the highest share of a source in a language
other than data.language. A remark is given above either."""
_UNIDENTIFIED = (UNSURE, UNDETERMINED)
_BEGINNING, _MOST_NAMED = 60, 5
"""Number of characters shown from the first document; most languages, and most kinds of repair, that are shown."""


def read_corpus(corpus: Mixture, data: DataConfig, clean: Callable[[str], str] | None = None) -> Reading:
    """Reads a sample of each source of `data`, and describes how the sources were understood. `clean`: a tokenizer's
    cleaning; a remark names the letters that the cleaning drops.

    Raises UsageError if a source can't be read or holds no text.
    """
    size = max(_BYTES // len(corpus.parts), _LEAST_BYTES)
    samples = dict[str, SpreadSample]()
    for source, part in zip(data.source, corpus.parts, strict=True):
        if not isinstance(part.source, PythonDocs):  # it always has text, and reading it starts processes
            samples[source] = read_sample(part, most_bytes=size, name=source)
    reading = reading_of_samples(corpus, data, samples)
    for source, sample in samples.items():
        if clean and (merged := merged_letters(chain.from_iterable(sample.documents), clean)):
            remedy = "--vocabulary.strip-accents False keeps them in a new vocabulary, and a cased model may"
            reading.remarks.append(f"{source}: {merged}; {remedy}")
            break
    return reading


def reading_of_samples(corpus: Mixture, data: DataConfig, samples: Mapping[str, SpreadSample]) -> Reading:
    """How the sources of `data` were understood. `samples`: a sample of each source that was read."""
    facts = [_format(corpus, data)]
    if files := sum(len(part.source.sizes) for part in corpus.parts if isinstance(part.source, FileSource)):
        facts.append(Fact(name="files", value=counted(files, "files")))
    if corpus.unit != "%":  # "%" stands for several units
        facts.append(Fact(name="size", value=f"{float(f'{corpus.total:.3g}'):,.15g} {corpus.unit}"))
    languages, remarks, sentences = Counter[str](), dict[str, list[str]](), 0.0
    for source, language in zip(data.source, data.languages, strict=True):
        if sample := samples.get(source):
            lines = [line for document in sample.documents for line in document]
            split = [split_sentences(line, language) for line in _spread(lines, _SPLIT_LINES // len(samples))]
            mean = sum(map(len, split)) / len(split)
            shares = _language_shares(sample.documents, _BLOCKS // len(samples))
            sentences += mean / len(samples)
            languages += Counter({name: round(share * sample.text_bytes) for name, share in shares.items()})
            groups = _groups(sample.documents, max(_CHARACTERS // len(samples), _LEAST_CHARACTERS))
            for odd in (*_misnamed(shares, language, mean, data), *oddities(groups)):
                remarks.setdefault(odd.kind, []).append(f"{source}: {odd.figure}; {odd.remedy}")
    if samples:
        facts += _of_samples([*samples.values()])
        facts.append(Fact(name="a line has", value=f"{sentences:.1f} sentences", known_by=f"data.layout={data.layout}"))
        facts.append(Fact(name="languages", value=_in_words(languages), known_by="content"))
    return Reading(
        subject=f"corpus {data.source[0] if len(data.source) == 1 else f'of {len(data.source)} sources'}",
        facts=facts,
        remarks=[of[0] if len(of) == 1 else f"{of[0]} ({len(of) - 1} more sources are so)" for of in remarks.values()],
    )


def _format(corpus: Mixture, data: DataConfig) -> Fact:
    """The kinds of the sources, and what shows the kinds."""
    kinds, known_by = Counter[str](), dict[str, None]()
    for source, resolved, part in zip(data.source, corpus.resolved, corpus.parts, strict=True):
        packed = part.source.compression if isinstance(part.source, FileSource) else None
        kinds[resolved.partition(":")[0] + (f" in {packed} files" if packed else "")] += 1
        end = suffix(source.partition("#")[0])
        known_by["prefix" if source == resolved else f"suffix {end}" if end in RECORD_SUFFIXES else "content"] = None
    formats = [f"{count} x {kind}" if len(data.source) > 1 else kind for kind, count in kinds.most_common()]
    return Fact(name="format", value=", ".join(formats), known_by=", ".join(known_by))


def _of_samples(samples: Sequence[SpreadSample]) -> Iterator[Fact]:
    number = sum(sample.number / max(sample.share, 1e-9) for sample in samples)
    share = sum(sample.bytes for sample in samples) / sum(sample.text_bytes for sample in samples)
    if share == 1:
        yield Fact(name="documents", value=f"{number:,.0f}")
    else:
        about = f"about {float(f'{number:.2g}'):,.0f}"
        yield Fact(name="documents", value=about, known_by=f"estimated from {share:.1%} of the text")
    yield Fact(name="begins with", value=repr(" ".join(samples[0].documents[0])[:_BEGINNING]))
    repairs = sum((sample.repairs for sample in samples), Counter[str]())
    if mended := [counted(count, kind) for kind, count in repairs.most_common(_MOST_NAMED)]:
        yield Fact(name="mended or left out", value=", ".join(mended), known_by="in the sample")


def _groups(documents: Sequence[Document], characters: int) -> list[Document]:
    """Groups of consecutive lines, spread over all documents, of about `characters` characters in all."""
    groups = [
        document[at : at + _LINES_TOGETHER] for document in documents for at in range(0, len(document), _LINES_TOGETHER)
    ]
    return groups[:: math.ceil(sum(len(line) for group in groups for line in group) / characters)]


def _spread(items: Sequence[str], count: int) -> Sequence[str]:
    """About `count` of the items, evenly spaced."""
    return items[:: max(len(items) // max(count, 1), 1)]


def _language_shares(documents: Sequence[Document], count: int) -> Counter[str]:
    """The share of the characters in each language, estimated from about `count` blocks of text."""
    sizes = Counter[str]()
    for block in _spread([block for document in documents for block in blocks(document)], count):
        sizes[identified(block)] += len(block)
    return Counter({language: size / sizes.total() for language, size in sizes.items()})  # type: ignore[dict-item]


def _in_words(languages: Counter[str]) -> str:
    names = Counter[str]()
    for code, size in languages.items():
        names["not identified" if code in _UNIDENTIFIED else code] += size
    shares = [(name, size / names.total()) for name, size in names.most_common(_MOST_NAMED)]
    return ", ".join(f"{share:.0%} {name}" for name, share in shares if share >= 0.005)


def _misnamed(shares: Counter[str], language: str, sentences: float, data: DataConfig) -> Iterator[Oddity]:
    """Yields the settings that a source contradicts: its language, or one sentence per line."""
    most, share = shares.most_common(1)[0]
    is_other = most not in (*_UNIDENTIFIED, language) and not are_same_language(most, language)
    if share > _MOST_OTHER and is_other and is_identifiable(language):
        figure = f"{share:.0%} is {language_name(most)}, and it is said to be in {language_name(language)}"
        yield Oddity("language", share, figure, "is it the right file, and the right data.language?")
    if data.layout == "sentences" and sentences > _MOST_SENTENCES:
        figure = f"a line has {sentences:.1f} sentences on average, and is taken for one"
        yield Oddity("layout", 1.0, figure, "leave data.layout=sentences out")
