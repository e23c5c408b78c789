"""Treebanks of the stories of conftest, with the tags that their grammar gives."""

from collections.abc import Iterable

from conftest import ADJECTIVES, NOUNS, VERBS, story

_TAGS = {
    **dict.fromkeys(NOUNS, "NOUN"),
    **dict.fromkeys(VERBS, "VERB"),
    **dict.fromkeys(ADJECTIVES, "ADJ"),
    **{"the": "DET", "near": "ADP", ".": "PUNCT", "number": "NOUN"},
}
Sentence = list[tuple[str, str]]
"""Words with their tags."""


def sentences(count: int, first: int = 500) -> list[Sentence]:
    """`count` tagged sentences of stories that the fixture `corpus` doesn't have."""
    found: list[Sentence] = []
    while len(found) < count:
        for line in story(first):
            words = (each.replace(".", " .").split() for each in line.split(" The"))
            found += [[(word, _TAGS.get(word.lower(), "NUM")) for word in each] for each in words]
        first += 1
    return found[:count]


def conllu(tagged: Iterable[Sentence]) -> str:
    """The sentences as CoNLL-U."""
    lines = []
    for one in tagged:
        lines += [
            "# a comment",
            *("\t".join((str(n), word, "_", tag, *"______")) for n, (word, tag) in enumerate(one, 1)),
            "",
        ]
    return "\n".join(lines) + "\n"


def conll(tagged: Iterable[Sentence]) -> str:
    """The sentences as columns: the word, and its tag."""
    return "".join("".join(f"{word}\t{tag}\n" for word, tag in one) + "\n" for one in tagged)
