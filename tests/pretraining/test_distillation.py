"""A student that learns from a teacher: its losses by numpy, that the teacher stays as it is, that a run goes on bit
for bit, on one device as on eight, and what others read of it."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stages import parameters, stopped_at

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import MeshConfig
from bert_jax.config.training import Phase
from bert_jax.config.unused import refuse_unused
from bert_jax.layout import TokenSequence, lay_out_sequences
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.model.sharding import make_mesh
from bert_jax.model.size import num_parameters
from bert_jax.pretraining.distillation import prediction_divergence, relation_divergence
from bert_jax.pretraining.evaluation import evaluate_run
from bert_jax.pretraining.initial import initial_parameters, open_initial
from bert_jax.pretraining.objective import expected_vocabulary_size, pretraining_objective, pretraining_trainer
from bert_jax.pretraining.pretrain import plan_pretraining, pretrain
from bert_jax.pretraining.teacher import open_teacher, teacher_parameters, with_teacher
from bert_jax.products.bench import bench
from bert_jax.run.checkpoint_manifest import complete
from bert_jax.run.metrics import read_metrics
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.saved_state import load_parameters, saved_shapes
from bert_jax.run.trained_model import save_model
from bert_jax.system.errors import UsageError
from bert_jax.training.step import example_keys

KINDS = ("predictions", "relations")


@pytest.fixture(scope="module")
def config(tiny_config, tiny_run):
    """Of a student of one layer, of another width than its teacher, `tiny_run`."""
    model = {"num_layers": 1, "hidden_size": 16, "dropout": 0.1}
    changed = tiny_config.change(model=model, distillation={"weight": 0.75, "relation_heads": 4})
    return changed.replace(teacher=str(tiny_run.path))


def of_kind(config, kind):
    return config.change(distillation={"kind": kind})


@pytest.fixture(scope="module", params=KINDS)
def run(request, config, tmp_path_factory):
    run = RunDirectory(tmp_path_factory.mktemp("taught") / request.param)
    pretrain(of_kind(config, request.param), run)
    return run


def state_on_disk(run):
    """The arrays of the newest checkpoint's parameters, those of the teacher too."""

    newest = sorted(run.checkpoints.glob("[0-9]*"))[-1]
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=one), saved_shapes(newest))
    return load_parameters(newest, shapes)


def lines(run, split="train"):
    return [line for line in read_metrics(run.metrics_file) if line["split"] == split]


def equal(first, second):
    return jax.tree.all(jax.tree.map(lambda a, b: np.asarray(a).tobytes() == np.asarray(b).tobytes(), first, second))


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def test_the_divergence_of_predictions_is_that_of_a_numpy_formula():
    theirs, ours = np.random.default_rng(0).normal(size=(2, 3, 5, 7)).astype(np.float32) * 3
    first, second = log_softmax(theirs / 2.5), log_softmax(ours / 2.5)
    expected = 2.5**2 * (np.exp(first) * (first - second)).sum(axis=-1)
    np.testing.assert_allclose(prediction_divergence(jnp.asarray(theirs), jnp.asarray(ours), 2.5), expected, rtol=1e-4)
    assert expected.min() > 0


def test_the_divergence_of_relations_is_that_of_a_numpy_formula_for_different_widths():
    random = np.random.default_rng(0)
    theirs, ours = (random.normal(size=(2, 6, *heads)).astype(np.float32) for heads in ((3, 8), (2, 6)))
    sequence = np.array([[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 1]])  # packed, and whole
    admitted = (sequence[:, :, None] == sequence[:, None]) & (sequence[:, None] > 0)
    found = relation_divergence(jnp.asarray(theirs), jnp.asarray(ours), 4, jnp.asarray(admitted))
    expected = np.zeros((2, 6))
    for row, place in np.ndindex(2, 6):
        others = np.flatnonzero(admitted[row, place])
        for head in range(4) if len(others) else ():
            rows = []
            for x in (theirs, ours):
                vectors = x[row].reshape(6, 4, -1)[:, head]
                rows.append(log_softmax(vectors[others] @ vectors[place] / np.sqrt(vectors.shape[-1])))
            expected[row, place] += (np.exp(rows[0]) * (rows[0] - rows[1])).sum() / 4
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert (expected[sequence > 0] > 0).all()


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "positions": "rotary"}, {"key_value_heads": 1}])
@pytest.mark.long
def test_a_network_keeps_the_vectors_of_its_last_layer(changes):
    config = ModelConfig.tiny(vocabulary_size=50, num_heads=2, **changes)
    params, network = init(config, jax.random.key(0)), BertForPretraining(config)
    tokens = lay_out_sequences([TokenSequence(range(1, 9), 8), TokenSequence(range(5), 5)], (2, 8), pad_id=0)
    tokens = jax.tree.map(jnp.asarray, tokens)
    places = jnp.array([[2, 5], [1, 3]])
    (logits, _), kept = network.apply({"params": params}, tokens, places, mutable=["intermediates"])
    np.testing.assert_allclose(logits, network.apply({"params": params}, tokens, places)[0], atol=1e-5)
    query, key, value = kept["intermediates"]["bert"]["encoder"]["projected"][0]
    assert query.shape == key.shape == value.shape == (2, 8, 2, config.head_size)
    layers = network.apply({"params": params}, tokens, return_layers=True, method="encode").layers
    block = jax.tree.map(lambda leaf: leaf[-1], params["bert"]["encoder"]["layers"])
    x = np.asarray(layers[-2])
    if config.norm == "pre":
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + config.layer_norm_epsilon)
    own = block["attention"]["query"] if config.key_value_heads else block["attention"]
    kernel, bias = (own["kernel"], own["bias"]) if config.key_value_heads else (own["kernel"][:, 0], own["bias"][0])
    np.testing.assert_allclose(query, np.einsum("btd,dhk->bthk", x, kernel) + bias, atol=1e-4)


def random_batch(objective):
    return jax.tree.map(jnp.asarray, objective.random_batch((4, 32)))


def measured(objective, params, batch, keys=None):
    targets = objective.targets(batch, example_keys(0, "targets", 0, batch.ordinal))
    return objective.measure(params, targets, keys), objective.counts(targets)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_a_student_that_equals_its_teacher_diverges_by_nothing(config, tiny_config, kind):
    taught = of_kind(config, kind).replace(model=tiny_config.model)
    objective = pretraining_objective(with_teacher(taught, open_teacher(taught, OpenedModels())), 150)
    params = objective.init(jax.random.key(0))
    params["teacher"] = objective.teacher.own_parts(params)
    means, counts = jax.jit(lambda params: measured(objective, params, random_batch(objective)))(params)
    assert abs(means["teacher_loss"].value) < 1e-6 and means["teacher_loss"].count == counts["teacher_loss"]
    assert kind == "relations" or means["teacher_agreement"].value == 1
    params["teacher"] = objective.init(jax.random.key(1))["teacher"]
    assert measured(objective, params, random_batch(objective))[0]["teacher_loss"].value > 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_a_teacher_has_no_gradients_and_no_slots_and_the_student_begins_as_without(config, kind):
    taught, plain = of_kind(config, kind), config.replace(teacher=None)
    taught = with_teacher(taught, open_teacher(taught, OpenedModels()))
    trainers = [pretraining_trainer(each, make_mesh(MeshConfig()), 150) for each in (taught, plain)]
    objective, alone = (trainer.objective for trainer in trainers)
    params = objective.init(jax.random.key(0))
    parts = {"bert"} if kind == "relations" else {"bert", "masked_lm"}
    assert set(params["teacher"]) == parts and "pooler" not in params["teacher"]["bert"]
    assert equal({name: part for name, part in params.items() if name != "teacher"}, alone.init(jax.random.key(0)))
    batch = random_batch(objective)
    targets = objective.targets(batch, example_keys(0, "targets", 0, batch.ordinal))
    gradients, _ = objective.gradients(params, targets, example_keys(0, "dropout", 0, batch.ordinal), 2)
    assert "teacher" not in gradients and set(gradients) == set(params) - {"teacher"}
    slots = [jax.tree.map(lambda leaf: leaf.shape, trainer.state_shapes.optimizer) for trainer in trainers]
    assert slots[0] == slots[1]
    assert num_parameters(objective.model, shapes=objective.parameter_shapes) == num_parameters(alone.model)
    flops, forward = (getattr(objective, name)((4, 32)) for name in ("flops", "forward_flops"))
    added = flops - alone.flops((4, 32)), forward - alone.forward_flops((4, 32))
    assert added[0] > 0 and (added[0] == added[1] if kind == "predictions" else added[1] < added[0])
    memories = [each.memory(config.phases[0], make_mesh(MeshConfig())) for each in (objective, alone)]
    assert all(more >= less for more, less in zip(*memories)) and memories[0].total > memories[1].total
    assert memories[0].gradients == memories[1].gradients


@pytest.mark.long
def test_a_run_measures_what_it_learns_and_its_teacher_stays(run, tiny_run):
    kind = run.path.name
    for line in (*lines(run), *lines(run, "eval")):
        within = 1e-9 if line["split"] == "eval" else 1e-4
        loss = 0.25 * line["mlm_loss"] + line["nsp_loss"] + 0.75 * line["teacher_loss"]
        assert line["loss"] == pytest.approx(loss, rel=within)
        assert ("teacher_agreement" in line) == (kind == "predictions")
    assert lines(run)[0]["teacher_loss"] > lines(run)[-1]["teacher_loss"] > 0
    began = run.files.pretraining_config
    assert json.loads(began.distillation.settings)["num_layers"] == 2
    assert began.set({"teacher": "another"}).distillation.settings is None
    assert began.set({"seed": 1}).distillation.settings == began.distillation.settings
    teacher, saved = bert_jax.load(tiny_run.path).params, state_on_disk(run)["teacher"]
    assert equal({name: part for name, part in teacher["bert"].items() if name != "pooler"}, saved["bert"])
    assert kind == "relations" or equal(teacher["masked_lm"], saved["masked_lm"])


@pytest.mark.long
def test_it_goes_on_bit_for_bit_without_the_teachers_files(run, config, tiny_run, tmp_path):
    copy = shutil.copytree(tiny_run.path, tmp_path / "teacher")
    moved = of_kind(config, run.path.name).replace(teacher=str(copy))
    with stopped_at(5):
        pretrain(moved, RunDirectory(tmp_path / "run"))
    shutil.rmtree(copy)
    pretrain(moved, RunDirectory(tmp_path / "run"))
    assert parameters(tmp_path / "run") == parameters(run.path)
    with pytest.raises(UsageError, match="is another run: --distillation.weight is 0.75 there and 0.5 now"):
        pretrain(moved.change(distillation={"weight": 0.5}), RunDirectory(tmp_path / "run"))
    with pytest.raises(UsageError, match="is another run: --teacher is .* there and null now"):
        pretrain(moved.replace(teacher=None), RunDirectory(tmp_path / "run"))
    for path in complete(RunDirectory(tmp_path / "run").checkpoints):
        (path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=f"there is nothing at {copy}"):  # it would begin anew, with its teacher
        pretrain(moved, RunDirectory(tmp_path / "run"))


@pytest.mark.long
def test_eight_devices_train_as_one(run, config, check_on_eight):
    in_parts = of_kind(config, run.path.name).change(execution={"accumulation": 2})
    check_on_eight(in_parts, run, "loss", "mlm_loss", "teacher_loss")


@pytest.mark.parametrize("run", ["predictions"], indirect=True)
@pytest.mark.long
def test_others_read_the_student_without_its_teacher(run, config, tmp_path, monkeypatch):
    bert = bert_jax.load(run.path)
    assert "teacher" not in bert.params and bert.fill_mask("The [MASK] sees the dog.")
    assert command(["export", str(run.path), str(tmp_path / "exported")]) == 0
    assert "teacher" not in bert_jax.load(tmp_path / "exported").params
    card = (tmp_path / "exported/README.md").read_text()
    assert f"- teacher: {run.path.name} of `{config.teacher}`" in card
    results = evaluate_run(run)
    assert results.mlm_loss == pytest.approx(run.results(12).mlm_loss, rel=1e-5)
    assert results.loss == pytest.approx(results.mlm_loss + results.nsp_loss) and "teacher_loss" not in results.metrics
    assert command(["inspect", str(run.path)]) == 0
    later = config.replace(init=str(run.path), teacher=None)
    initial = open_initial(later, OpenedModels())
    assert "teacher" not in initial_parameters(initial, later, bert.tokenizer, make_mesh(MeshConfig()))
    monkeypatch.setattr(bench, "_CPU_SIZES", (128,))
    assert command(["bench", str(run.path), "--seconds", "0.1"]) == 0


def test_the_vocabulary_is_the_teachers(config, tmp_path, capsys):
    other = config.change(vocabulary={"size": 200})
    assert expected_vocabulary_size(other, OpenedModels()) == 150
    plan = plan_pretraining(other, RunDirectory(tmp_path / "run"), OpenedModels())
    assert plan.inputs.tokenizer.vocabulary.pieces == plan.inputs.teacher.tokenizer.vocabulary.pieces
    numbers = sum(leaf.size for leaf in jax.tree.leaves(plan.trainer.state_shapes.params["teacher"]))
    assert plan.trainer.objective.description == (
        "MLM (masked-language, weight 0.25), NSP (next-sentence), teacher (predictions at temperature 2, weight 0.75; "
        f"2 layers of width 32, {numbers - 106 * 33:,} frozen parameters)"
    )


@pytest.mark.long
def test_a_middle_layer_teaches_and_those_above_it_are_left_out(config, tmp_path):
    changed = of_kind(config, "relations").change(distillation={"layer": 0})
    plan = plan_pretraining(changed, RunDirectory(tmp_path / "run"), OpenedModels())
    teacher = plan.trainer.objective.teacher
    params = teacher_parameters(teacher, plan.inputs.teacher, plan.mesh)
    whole = bert_jax.load(config.teacher).params["bert"]
    first = jax.tree.map(lambda leaf: leaf[:1], whole["encoder"]["layers"])
    assert equal(params["bert"]["encoder"]["layers"], first)
    assert equal(params["bert"]["embeddings"], whole["embeddings"])
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, teacher.init(jax.random.key(0)))


def refused(config, tmp_path, expected):
    with pytest.raises(UsageError, match=expected) as error:
        pretrain(config, tmp_path / "refused")
    assert "\n" not in str(error.value) and not (tmp_path / "refused").exists()


def test_a_teacher_that_cannot_teach_is_refused_in_one_line(config, tiny_run, tmp_path):
    bert = bert_jax.load(tiny_run.path)
    lines = (tiny_run.tokenizer_directory / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join([*lines[:9], lines[10], lines[9], *lines[11:]]), encoding="utf-8")
    other = config.change(vocabulary={"file": str(tmp_path / "vocab.txt")})
    pieces = f"piece 9 is {lines[9]!r} there and {lines[10]!r} here"
    refused(other, tmp_path, f"--teacher=.* has another vocabulary than the model: {pieces}; leave out")
    encoder = {"bert": {name: part for name, part in bert.params["bert"].items() if name != "pooler"}}
    save_model(tmp_path / "encoder", bert.config, encoder, bert.tokenizer, None)
    without_head = config.replace(teacher=str(tmp_path / "encoder"))
    refused(without_head, tmp_path, "has no masked-language head to predict with; set --distillation.kind=relations")
    assert open_teacher(of_kind(without_head, "relations"), OpenedModels()).config == bert.config
    causal = bert.config.replace(causal=True)
    params = {"bert": encoder["bert"], "masked_lm": bert.params["masked_lm"]}
    save_model(tmp_path / "causal", causal, params, bert.tokenizer, None)
    refused(config.replace(teacher=str(tmp_path / "causal")), tmp_path, "the model is causal .* must see both sides")
    relations = of_kind(config, "relations")
    for changes, expected in (
        ({"layer": 2}, "--distillation.layer=2: .* has 2 layers, numbered from 0 to 1; choose one of them"),
        ({"relation_heads": 5}, "--distillation.relation-heads=5 doesn't divide both widths, 32 of the .* 1 2 4 8 16"),
    ):
        refused(relations.change(distillation=changes), tmp_path, expected)
    refused(config.replace(teacher="absent"), tmp_path, "there is no folder absent here")
    longer = config.change(model={"max_positions": 64}).replace(phases=(Phase(steps=1, length=64, batch_size=8),))
    refused(longer, tmp_path, "--teacher=.* has 32 positions, and sequences have up to 64 tokens; lower --phases.0.len")


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"objective.tags": "a.conllu", "objective.pair": "none"}, "--objective.tags=a.conllu: tags and a teacher"),
        (
            {"objective.predict": "next", "objective.pair": "none", "model.causal": True},
            "a teacher teaches masked tokens only",
        ),
        ({"distillation.settings": "{"}, "--distillation.settings holds no settings of a model; leave it out"),
        ({"distillation.weight": 1.5}, "--distillation.weight=1.5: expected a number of "),
        ({"teacher": None, "distillation.weight": 0.3}, "--distillation.weight=0.3 has no effect: it needs --teacher;"),
        ({"distillation.layer": 0}, "--distillation.layer=0 has no effect: it needs --distillation.kind=relations;"),
        (
            {"distillation.kind": "relations", "distillation.temperature": 3.0},
            "--distillation.temperature=3.0 has no effect: it needs --distillation.kind=predictions;",
        ),
        ({"vocabulary.size": 200}, "--vocabulary.size=200 has no effect: the vocabulary of --teacher=.* is taken"),
    ],
)
def test_settings_that_do_not_fit_a_teacher_or_have_no_effect_are_refused(config, changes, expected):
    with pytest.raises(UsageError, match=expected):
        refuse_unused(config.set(changes), changes)
