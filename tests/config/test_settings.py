import ast
import sys
from pathlib import Path
from typing import get_args

import pytest

import bert_jax
from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig, num_predictions
from bert_jax.config.operation import HostsConfig, LoggingConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import Settings, SettingsError
from bert_jax.config.training import OptimizerConfig, Phase, same_until
from bert_jax.system.errors import UsageError

ROOT = Path(bert_jax.__file__).parent
NARROW = {"hidden_size": 33, "num_heads": 1}
LONG_WARMUP = {"schedule": "warmup_stable_decay", "warmup": 0.6, "decay_share": 0.5}
PHASE = {"steps": 1, "length": 64, "batch_size": 8}
NEXT = {"predict": "next", "pair": "none"}


def run_set(**settings) -> RunConfig:
    """The default run with settings by their dotted names."""
    return RunConfig().set(settings)


@pytest.mark.parametrize(
    "kind, settings, words",
    [
        (ModelConfig, {"self": 1}, ["--model.self: there is no such setting"]),
        (ModelConfig, {"num_layer": 2}, ["--model.num-layer:", "did you mean num_layers"]),
        (ModelConfig, {"hidden_size": 2**63}, ["hidden-size=9223372036854775808", "at most 1,048,576"]),
        (ModelConfig, {"vocabulary_size": 2**63}, ["vocabulary-size=9223372036854775808", "at most 16,777,216"]),
        (ModelConfig, {"num_layers": 10**6}, ["num-layers=1000000", "at most 1,000"]),
        (ModelConfig, {"layer_norm_epsilon": 1e-320}, ["layer-norm-epsilon=1e-320", "at least 1e-30"]),
        (ModelConfig, {"layer_norm_epsilon": 1e308}, ["layer-norm-epsilon=1e+308", "at most 0.01"]),
        (ModelConfig, {"num_layers": "x" * 5000}, [f"num-layers={'x' * 60}...: expected a whole number above 0"]),
        (ModelConfig, {"dropout": float("nan")}, ["--model.dropout=nan: expected a number"]),
        (ModelConfig, NARROW | {"positions": "rotary"}, ["hidden-size=33", "num-heads=1", "heads 33 wide", "rotary"]),
        (ModelConfig, NARROW | {"positions": "sinusoidal"}, ["hidden-size=33", "even width"]),
        (ModelConfig, {"local_window": 64}, ["local-window=64", "global-every=1", "give --model.global-every"]),
        (ModelConfig, {"global_every": 3}, ["global-every=3", "local-window=None"]),
        (ModelConfig, {"norm": "pre", "shared_layers": True}, ["norm=pre", "set --model.no-shared-layers"]),
        (ModelConfig, {"activation": "relu"}, ["activation=relu", "gelu_tanh"]),
        (OptimizerConfig, {"name": "adam"}, ["--optimizer.name=adam: expected one of adamw, lamb, muon"]),
        (OptimizerConfig, LONG_WARMUP, ["warmup=0.6", "decay-share=0.5", "more than 1"]),
        (Phase, PHASE | {"steps": 2**63}, ["steps=9223372036854775808", "below 2,147,483,648"]),
        (Phase, PHASE | {"steps": -5}, ["steps=-5: expected a whole number above 0"]),
        (Phase, {"steps": 5}, ["length is missing; give a whole number of at least 8", "(Tokens of a row"]),
        (RunConfig, {"seed": -1}, ["--seed=-1: expected a whole number of at least 0"]),
        (RunConfig, {"phases": ()}, ["--phases=(): expected one or more"]),
        (RunConfig, {"phases": 3}, ["--phases=3: expected one or more, each a Phase"]),
        (RunConfig, {"phases": [{"steps": 5}]}, ["--phases.0.length is missing", "--phases.0.batch-size is"]),
        (RunConfig, {"phases": [PHASE | {"length": 600}]}, ["length=600", "max-positions=512"]),
        (RunConfig, {"phases": [PHASE | {"steps": 2**30}]}, ["phases.0", "a phase may have 4,294,967,296"]),
        (RunConfig, {"phases": [PHASE | {"rotary_base": 50.0}]}, ["--phases.0.rotary-base=50", "positions=rotary"]),
        (RunConfig, {"phases": [PHASE], "execution": {"accumulation": 3}}, ["batch-size=8", "accumulation=3"]),
        (RunConfig, {"profile_steps": "5:3"}, ["profile-steps=5:3", "FIRST:LAST"]),
        (RunConfig, {"profile_steps": "5:2000000"}, ["profile-steps=5:2000000", "1,000,000 steps"]),
        (RunConfig, {"model": {"causal": True}}, ["--model.causal with", "set --objective.predict=next"]),
        (RunConfig, {"objective": NEXT}, ["predict=next with --model.no-causal", "set --model.causal"]),
        (RunConfig, {"data": {"whole_sentences": False}}, ["--data.no-whole-sentences", "set --objective.pair=none"]),
        (RunConfig, {"data": {"across_documents": False}}, ["--data.no-across-documents", "without pairs"]),
        (ObjectiveConfig, {"mask_probability": 0.9, "random_probability": 0.2}, ["0.9", "0.2", "more than 1"]),
        (ObjectiveConfig, {"predict": "next"}, ["predict=next", "pair=next_sentence", "set --objective.pair=none"]),
        (ObjectiveConfig, {"units": "piece:x"}, ["units=piece:x: expected piece, word", "word:0.7 phrase:0.3"]),
        (run_set, {"phases.0.units": "ngrams"}, ["units=ngrams: expected piece, word", "did you mean ngram?"]),
        (run_set, {"phases.0.units": "word:0.5 entity"}, ["0.5 entity has weights for some kinds only"]),
        (run_set, {"phases.0.units": "entity"}, ["--phases.0.units=entity: no entities are marked"]),
        (run_set, {"model.num_heads": 7}, ["--model.hidden-size=768", "--model.num-heads=7"]),
        (run_set, {"model.num_head": 7}, ["--model.num-head: there is no such setting"]),
        (HostsConfig, {"coordinator": "10.0.0.1:8476", "count": 2, "index": 2}, ["must be less than --hosts.count=2"]),
        (VocabularyConfig, {"kind": "byte_bpe", "size": 260}, ["size=260", "the 261 special pieces and bytes"]),
        (DataConfig, {"source": ()}, ["source=(): expected one or more"]),
        (DataConfig, {"source": ("a", "b", "a")}, ["a b a names a source twice; use --data.weights to see it more"]),
        (DataConfig, {"source": ("a", "b"), "weights": (1,)}, ["1 number for 2 sources; give one for each"]),
        (DataConfig, {"source": ("a", "b"), "weights": (1, 1e5)}, ["gives a source 1e-05", "0.0001 or more"]),
        (DataConfig, {"source": ("a", "b", "c"), "language": ("en", "de")}, ["2 codes for 3 sources"]),
    ],
)
def test_refusals_are_one_line_with_value_and_expectation(kind, settings, words):
    with pytest.raises(SettingsError) as refusal:
        kind(**settings)
    text = str(refusal.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_a_setting_of_another_group_is_no_misspelling():
    with pytest.raises(SettingsError, match="epochs: there is no such setting$"):
        ModelConfig(epochs=1)


def test_settings_are_frozen_hash_and_survive_json():
    config = RunConfig(model=ModelConfig.tiny())
    with pytest.raises(ValueError):
        config.seed = 3
    assert hash(config) == hash(RunConfig(model=ModelConfig.tiny()))
    assert RunConfig(**config.model_dump(mode="json")) == config


def test_one_source_may_be_a_string():
    one = DataConfig(source="text:a", language="de")
    assert (one.source, one.languages, one.has_shares) == (("text:a",), ("de",), False)
    assert DataConfig(**one.model_dump(mode="json")) == one == DataConfig(source=("text:a",), language=("de",))


def test_several_sources_have_shares_and_languages():
    several = DataConfig(source=("a", "b", "c"), weights=(3, 6, 1), language="de")
    assert several.shares([1, 5, 7]) == (0.3, 0.6, 0.1) and several.languages == ("de",) * 3
    assert several.replace(language=("de", "en", "zh")).languages == ("de", "en", "zh")
    assert DataConfig(**several.model_dump(mode="json")) == several


def test_slots_and_counts_are_the_originals():
    objective = ObjectiveConfig()
    assert (objective.slots(128), objective.slots(512)) == (20, 77)
    assert ObjectiveConfig(**NEXT).slots(128) == 128
    assert [num_predictions(0.15, n) for n in (1, 3, 10, 128, 190, 350, 390, 512)] == [1, 1, 2, 19, 28, 52, 58, 77]


def test_every_top_level_field_is_of_one_kind():
    operation = set("mesh hosts execution input evaluation checkpoints logging preparation profile_steps".split())
    assert set(RunConfig.IDENTITY) | operation == set(RunConfig.model_fields)
    assert not set(RunConfig.IDENTITY) & operation


def all_settings(kind: type[Settings] = Settings) -> set[type[Settings]]:
    return {kind} | {found for child in kind.__subclasses__() for found in all_settings(child)}


def is_of_the_house(kind: type[Settings]) -> bool:
    """Not a test's, and not made for one command line."""
    written = getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
    return written and kind.__module__.startswith("bert_jax.")


def test_every_setting_is_read_somewhere():
    read = {
        node.attr
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    for kind in filter(is_of_the_house, all_settings()):
        for name in kind.model_fields:
            assert name in read, f"nothing reads {kind.__name__}.{name}"
            field = kind.model_fields[name]
            groups = get_args(field.annotation) or (field.annotation,)
            assert field.description or all(issubclass(group, Settings) for group in groups), name


def test_plans_are_compared_as_far_as_steps_were_taken():
    def plan(*phases):
        return [Phase(steps=steps, length=length, batch_size=4) for steps, length in phases]

    begun = plan((10, 16), (10, 32))
    for step, other, same in [
        (10, plan((10, 16)), True),
        (11, plan((10, 16)), False),
        (5, plan((6, 16)), True),
        (7, plan((6, 16)), False),
        (7, plan((9, 16), (1, 8)), True),
        (11, plan((11, 16), (10, 32)), False),
        (15, plan((10, 16), (90, 32)), True),
        (15, plan((10, 16), (90, 64)), False),
        (20, plan((10, 16), (10, 32), (5, 64)), True),
        (0, plan((1, 64)), True),
    ]:
        assert same_until(step, begun, other) == same_until(step, other, begun) == same, (step, other)


@pytest.mark.parametrize("steps, given, every", [(50, None, 2), (5, None, 1), (7600, None, 100), (50, 7, 7)])
def test_a_short_run_has_as_many_lines_in_its_log_as_a_picture_needs(steps, given, every):
    config = RunConfig(phases=(Phase(steps=steps, length=128, batch_size=8),), logging=LoggingConfig(every=given))
    assert config.log_every == every


def test_copies_know_what_was_given_also_where_it_is_the_default():
    config = RunConfig(model=ModelConfig(dropout=0.0))
    changed = config.set({"model.dropout": ModelConfig().dropout, "data.chunk-megabytes": DataConfig().chunk_megabytes})
    assert changed.model.model_fields_set == {"dropout"} and changed.data.model_fields_set == {"chunk_megabytes"}
    assert changed.model == ModelConfig() and hash(changed) == hash(RunConfig())
    assert changed.change(model={"num_layers": 3}).model.model_fields_set == {"dropout", "num_layers"}
    with pytest.raises(SettingsError, match="sead"):
        changed.change(sead=5)
    assert changed.replace(seed=1).model.model_fields_set == {"dropout"}


def test_defaults_have_the_types_that_validation_gives():
    """Otherwise a config is written in two ways: validated on a command line, or as it was built in Python."""
    config = RunConfig()
    for group in [config, *(getattr(config, name) for name in RunConfig.model_fields)]:
        if isinstance(group, Settings):
            assert repr(group.replace()) == repr(group)


def test_single_settings_are_set_by_dotted_names_from_plain_values():
    changed = RunConfig().set({"model.num_layers": 3, "phases.0.steps": 7, "seed": 5})
    assert (changed.model.num_layers, changed.phases[0].steps, changed.seed) == (3, 7, 5)
    assert changed.set({"model": ModelConfig(), "phases": RunConfig().phases, "seed": 0}) == RunConfig()
    changed = RunConfig().set({"model.num-layers": "3", "data.source": "text:a", "data.deduplicate": "None"})
    assert (changed.model.num_layers, changed.data.source) == (3, ("text:a",))
    with pytest.raises(UsageError, match="phases.2: there is no entry 2: phases has 2, numbered from 0; a config file"):
        RunConfig().set({"phases.2.steps": 5})
    with pytest.raises(UsageError, match="seed={'x': 1}: expected a whole number"):
        RunConfig().set({"seed.x": 1})
