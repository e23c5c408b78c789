import copy
import json
import os

import pytest
from trained_tokenizers import KINDS, trained

from bert_jax.system.errors import UsageError
from bert_jax.text.library_calls import library_method
from bert_jax.text.pipeline import Tokenizer

METHODS = ("encode", "encode_special", "encode_spans", "cleaned", "piece_of_word", "encode_piece")
LONG = "a" * 60 + "b"


@pytest.mark.parametrize("text", ["\ud83d", "the quick \udc80 fox", "dog\udfff"])
@pytest.mark.parametrize("kind", [*KINDS, "as a pipeline"])
def test_half_of_a_surrogate_pair_is_refused_by_every_method(kind, text):
    tokenizer = trained("wordpiece").as_pipeline() if kind == "as a pipeline" else trained(kind)
    for method in METHODS:
        with pytest.raises(UsageError, match="half of a surrogate pair"):
            getattr(tokenizer, method)(text)
    for texts in ([text], ["fox", text], ["fox | dog", text]):
        with pytest.raises(UsageError, match="half of a surrogate pair"):
            tokenizer.encode_batch(texts)


@pytest.mark.parametrize("value", [5, None, b"fox"])
def test_a_value_that_is_no_text_is_refused(value):
    with pytest.raises(UsageError, match="is no text"):
        trained("byte_bpe").encode(value)
    with pytest.raises(UsageError, match="is no text"):
        trained("byte_bpe").encode_batch(["fox", value])


def with_pattern(pattern: str, part: str) -> Tokenizer:
    """A byte-level tokenizer with a further regular expression in `part` of its tokenizer.json."""
    file = copy.deepcopy(trained("byte_bpe").contents)
    if part == "normalizer":
        file[part] = {"type": "Replace", "pattern": {"Regex": pattern}, "content": "q"}
    else:
        step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        file[part] = {"type": "Sequence", "pretokenizers": [step, file[part]]}
    return Tokenizer(file, "tokenizer.json")


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer"])
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", r"(\p{L}+\p{M}*)+\d"])
def test_a_pattern_that_takes_too_long_is_refused_in_one_line_without_the_library_s_report(pattern, part, capfd):
    tokenizer = with_pattern(pattern, part)
    assert tokenizer.encode("fox") and tokenizer.encode_batch(["fox", "dog"])
    of_batch = lambda text: tokenizer.encode_batch([text])
    calls = [tokenizer.encode, tokenizer.encode_special, tokenizer.encode_spans, of_batch]
    for call in calls:
        with pytest.raises(UsageError, match="retry-limit") as raised:
            call(LONG)
        assert json.dumps(pattern)[1:-1] in str(raised.value) and "aaaa" in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_what_others_write_to_standard_error_meanwhile_is_kept(capfd):
    class Chatty:
        patterns, name = ("a",), "x"

        @library_method
        def encode(self, text):
            os.write(2, b"a message\n")
            return text

    assert Chatty().encode("fox") == "fox"
    assert capfd.readouterr().err == "a message\n"


@pytest.mark.parametrize(
    "change",
    [
        {"special_tokens": {}},
        {"pair": [{"SpecialToken": {"id": "[X]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]},
        {"special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [99_999], "tokens": ["[CLS]"]}}},
    ],
)
def test_a_template_that_sets_a_token_without_a_number_is_refused(change):
    file = copy.deepcopy(trained("wordpiece").as_pipeline().contents)
    file["post_processor"] |= change
    with pytest.raises(UsageError, match="its post_processor sets '.*', which its special_tokens lack"):
        Tokenizer(file)


def test_steps_within_steps_of_a_post_processor_are_refused():
    file = copy.deepcopy(trained("wordpiece").as_pipeline().contents)
    within = {"type": "Sequence", "processors": [file["post_processor"]]}
    file["post_processor"] = {"type": "Sequence", "processors": [within]}
    with pytest.raises(UsageError, match="in a Sequence isn't read here"):
        Tokenizer(file)
