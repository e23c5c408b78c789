"""The special tokens that a tokenizer sets round one text or two, read from the post-processor of a tokenizer.json."""

from typing import Any, NamedTuple

from bert_jax.system.errors import UsageError, quoted


class Frame(NamedTuple):
    """Ids of the special tokens round one text and round a pair, and where the second segment begins."""

    single: tuple[tuple[int, ...], tuple[int, ...]]
    """The ids before and after a text by itself."""
    pair: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    """The ids before, between and after two texts."""
    of_first: int
    """How many of the ids between belong to the first text."""
    segments: bool = True
    """Whether what follows is in segment 1. False, as in RoBERTa: both texts are in segment 0."""

    @classmethod
    def of_separators(cls, cls_id: int, sep_id: int, separators: int = 1) -> "Frame":
        """[CLS] text [SEP], and with `separators` between the texts of a pair, which belong to the first: one in BERT,
        two in RoBERTa, which has no segments."""
        pair = ((cls_id,), (sep_id,) * separators, (sep_id,))
        return cls(((cls_id,), (sep_id,)), pair, separators, separators == 1)

    def around(self, texts: int) -> tuple[tuple[int, ...], ...]:
        """The ids before, between and after so many texts: one or two."""
        return self.single if texts == 1 else self.pair

    def size(self, texts: int) -> int:
        """Number of special tokens round so many texts."""
        return sum(map(len, self.around(texts)))

    def separators(self, cls_id: int, sep_id: int) -> int | None:
        """The number of separators between two texts; None if the frame isn't one of `of_separators`."""
        count = len(self.pair[1])
        return count if count and self[:3] == Frame.of_separators(cls_id, sep_id, count)[:3] else None


def frame_of(step: Any, ids: dict[str, int], name: str) -> Frame:
    """The frame that `step`, the post-processor of the tokenizer.json `name`, sets; `ids` are those of its pieces.

    Raises UsageError for one that sequences can't have here, such as one with the second text first.
    """
    parts = step.get("processors") or [] if isinstance(step, dict) and step.get("type") == "Sequence" else [step]
    setting = [part for part in parts if isinstance(part, dict) and part.get("type") != "ByteLevel"]
    if len(setting) > 1:
        raise UsageError(f"{name}: two steps of its post_processor set special tokens; one is read here")
    if not setting:
        return Frame(((), ()), ((), (), ()), 0)
    [only] = setting
    if only["type"] == "TemplateProcessing":
        tokens = {key: tuple(token["ids"]) for key, token in only["special_tokens"].items()}
        single, _ = _parts(only["single"], tokens, "A", name)
        pair, of_first = _parts(only["pair"], tokens, "AB", name)
        between = len(pair[1])
        return Frame((single[0], single[1]), (pair[0], pair[1], pair[2]), min(of_first, between), of_first <= between)
    (cls, cls_id), (sep, sep_id) = only["cls"], only["sep"]
    if (ids.get(cls), ids.get(sep)) != (cls_id, sep_id):
        raise UsageError(
            f"{name}: its post_processor numbers {quoted(cls)} and {quoted(sep)} otherwise than its pieces"
        )
    return Frame.of_separators(cls_id, sep_id, 2 if only["type"] == "RobertaProcessing" else 1)


def _parts(
    template: list[dict[str, Any]], tokens: dict[str, tuple[int, ...]], texts: str, name: str
) -> tuple[list[tuple[int, ...]], int]:
    """The ids before, between and after the `texts` of a template, and how many tokens after the first text are in
    segment 0.

    Raises UsageError for other texts, another order, or segments that don't rise from 0 to 1 after the first text.
    """
    runs: list[tuple[int, ...]] = [()]
    segments: list[int] = []
    found, last = "", 0
    for part in template:
        [(kind, value)] = part.items()
        ids = tokens[value["id"]] if kind == "SpecialToken" else (0,)
        segments += [value["type_id"]] * len(ids)
        if kind == "SpecialToken":
            runs[-1] += ids
        else:
            found, last = found + value["id"], len(segments)
            runs.append(())
    in_order = segments == sorted(segments) and {*segments} <= {0, len(texts) - 1}
    of_first = segments.count(0) - len(runs[0]) - 1
    # The first text is in segment 0, and what follows the second one in the same segment as that.
    if found != texts or not in_order or of_first < 0 or (texts == "AB" and {*segments[last - 1 :]} == {0, 1}):
        raise UsageError(
            f"{name}: its post_processor sets {quoted(' '.join(found))} with the segments {segments}; a frame that is "
            "read here has the first text in segment 0, and after it the second one in segment 0 or 1"
        )
    return runs, of_first
