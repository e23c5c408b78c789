import pytest

from bert_jax.config.settings import SettingsError
from bert_jax.config.task import TaskConfig
from bert_jax.config.task_kind import TASK_KINDS

SPAN = {"kind": "span", "texts": ("question", "context")}
VECTORS = {"kind": "vectors", "texts": ("query", "positive")}


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"kind": "span"}, "--task.kind=span takes 2 --task.texts and has 1"),
        ({"kind": "class", "texts": ("a", "b", "c")}, "--task.kind=class takes 1 or 2 --task.texts and has 3"),
        ({"kind": "choice", "choices": ("one",)}, "has 1 --task.choices; a choice needs two columns or more"),
        ({"kind": "class", "choices": ("one", "two")}, "has 2 --task.choices"),
        ({"kind": "marked", "texts": ("a", "b"), "marks": ("begin", "end")}, "takes 4 --task.marks and has 2"),
        ({"kind": "class", "marks": ("begin", "end")}, "takes 0 --task.marks and has 2"),
        ({"kind": "number", "metric": "accuracy"}, "--task.metric=accuracy doesn't measure --task.kind=number; choose"),
        (SPAN | {"max_length": 128}, "--task.max-length=128 leaves no window of --task.span.stride=128 pieces"),
        ({"kind": "class", "texts": ("{title. {body}",)}, "has '{title. {body}', a brace without the other"),
        ({"kind": "class", "texts": ("title}",)}, "--task.texts has 'title}', a brace without the other"),
        ({"kind": "choice", "choices": ("one", "one")}, "--task.choices=one one has 'one' twice"),
        ({"kind": "marked", "marks": ("at", "at")}, "--task.marks=at at has 'at' twice"),
        ({"kind": "class", "labels": ("0", "1", "1")}, "--task.labels=0 1 1 has '1' twice; name each once"),
        ({"kind": "number", "class_weights": "balanced"}, "--task.class-weights is for kinds class, marked, tags"),
        ({"kind": "class", "labels": ("a", "b"), "class_weights": (1.0,)}, "=1.0 has 1 of them for 2 labels; give"),
        ({"kind": "labels", "label_smoothing": 0.1}, "--task.label-smoothing is for kinds class, marked, choice, tags"),
        ({"kind": "class", "label_smoothing": 1.0}, "label-smoothing=1.0"),
        ({"kind": "class", "label_smoothing": -0.1}, "label-smoothing=-0.1"),
        ({"kind": "sentence"}, "--task.kind=sentence: expected one of class, labels, number"),
        (VECTORS | {"train": "a.tsv", "source": "text:b"}, "both name what to learn from"),
        (VECTORS | {"batch_size": 1}, "leaves a pair nothing to be compared with"),
        (VECTORS | {"score_range": (5.0, 0.0)}, "give the lowest and then the highest score"),
        (VECTORS | {"temperature": 0.0}, "expected a finite number above 0"),
        (VECTORS | {"widths": (8, 8)}, "has a width twice"),
        (VECTORS | {"widths": (0,)}, "expected whole numbers above 0"),
        (VECTORS | {"pairs": "title"}, "it is for pairs made of a corpus; give --task.source"),
        ({"kind": "class", "source": "text:b"}, "--task.kind=class: only vectors are learned from a corpus"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(settings, words):
    with pytest.raises(SettingsError) as refusal:
        TaskConfig(**{"name": "x"} | settings)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("kind", TASK_KINDS)
def test_every_kind_has_what_it_needs_and_survives_json(kind):
    needs = {
        "span": {"texts": SPAN["texts"], "max_length": 384},
        "choice": {"choices": ("first", "second")},
        "marked": {"marks": ("begin", "end")},
        "vectors": {"texts": VECTORS["texts"]},
    }
    for metric in (None, *TASK_KINDS[kind].metrics):
        config = TaskConfig(name="x", kind=kind, metric=metric, **needs.get(kind, {}))
        assert TaskConfig(**config.model_dump(mode="json")) == config and hash(config)


def test_a_task_is_made_to_fit_the_models_positions():
    plain = TaskConfig(name="x", kind="class", max_length=128)
    assert plain.shortened_to(128) is plain
    assert plain.shortened_to(64) == plain.replace(max_length=64)
    answers = TaskConfig(name="x", **SPAN, max_length=384)
    fitted = answers.shortened_to(64)
    assert (fitted.max_length, fitted.span.question_length, fitted.span.stride) == (64, 21, 21)
    assert answers.shortened_to(256).span == answers.span and answers.shortened_to(8).max_length == 8
