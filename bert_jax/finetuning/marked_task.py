"""A class for a text or pair in which a word of each is marked."""

from collections import Counter

from bert_jax.batching.sequences import joined, truncated_sizes
from bert_jax.finetuning.columns import text, whole_number
from bert_jax.finetuning.pieces import pieces_of
from bert_jax.finetuning.sentence_task import ClassTask
from bert_jax.finetuning.task import CUT, Example, Task
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError

_DROPPED = "rows whose marked word has no piece"


class MarkedTask(ClassTask):
    """Whether a word has the same meaning in two texts, as in SuperGLUE's WiC."""

    encode = Task.encode

    def examples(self, record: Record, repairs: Counter[str], train: bool) -> list[Example]:
        """One example with the places of the marked words. A long text is cut around its word.

        A record whose marked word has no piece is not learned from; in prediction [CLS] stands for it.
        """
        config, vocabulary = self.config, self._tokenizer.vocabulary
        spans, words = [], []
        for number, template in enumerate(config.texts):
            whole = text(record, template)
            begin, end = (
                whole_number(record, name, record.value(name), repairs)
                for name in config.marks[2 * number : 2 * number + 2]
            )
            if not 0 <= begin < end <= len(whole):
                raise UsageError(
                    f"{record.place}: the marked word is at characters {begin} to {end} of a text of {len(whole)}; "
                    f"give its beginning, from 0, and its end (exclusive) in {', '.join(config.marks)}"
                )
            spans.append(self._tokenizer.encode_spans(whole))
            words.append(pieces_of(spans[-1], begin, end))
        sizes = truncated_sizes(tuple(map(len, spans)), config.max_length, vocabulary.frame)
        repairs[CUT.format(config.max_length)] += sum(sizes) < sum(map(len, spans))
        before, *after = vocabulary.frame.around(len(spans))
        parts, marks, offset = [], [], len(before)
        for of_text, size, word, special in zip(spans, sizes, words, after, strict=True):
            first = min(max((word.start + word.stop - size) // 2, 0), len(of_text) - size)
            begin, last = offset - first, first + size
            # A marked phrase may be longer than what is kept.
            marks.append((begin + max(word.start, first), begin + min(word.stop, last)) if word else (0, 1))
            parts.append([piece.id for piece in of_text[first:last]])
            offset += size + len(special)
        repairs[_DROPPED] += not all(words)
        if train and not all(words):
            return []
        target = self.gold(record) if train else None
        return [Example((joined(parts, vocabulary, config.max_length),), target, tuple(marks))]
