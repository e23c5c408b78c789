"""What a training would do, as facts."""

import shutil

from bert_jax.planning.planned_run import StoredData, UnpreparedData, planned_run


def test_a_new_run_is_planned_with_its_text_steps_and_memory(tiny_config, tmp_path, corpus):
    plan = planned_run(tiny_config, tmp_path / "run", overwrite=False)
    assert (plan.beginning, plan.steps, plan.newest_step) == ("new", 12, 0)
    assert plan.data == (UnpreparedData(32, (f"text:{corpus}",), corpus.stat().st_size / 1e6, "MB"),)
    assert (plan.vocabulary.pieces, plan.vocabulary.source) == (150, "trained") and plan.task is None
    (phase,) = plan.phases
    assert (phase.done, phase.left, phase.most_tokens) == (0, 12, 12 * 8 * 32)
    # By default two checkpoints are kept; the best one and one being written lie beside them.
    assert plan.checkpoints.bytes == phase.memory.state
    assert plan.checkpoints.most_bytes == (tiny_config.checkpoints.keep + 2) * phase.memory.state
    assert not list(tmp_path.iterdir())


def test_of_a_run_that_is_there_the_steps_left_are_planned(tiny_config, tiny_run):
    longer = tiny_config.replace(phases=(tiny_config.phases[0].replace(steps=20),))
    plan = planned_run(longer, tiny_run.path, overwrite=False)
    assert (plan.beginning, plan.newest_step, plan.phases[0].left) == ("continued", 12, 8)
    assert isinstance(plan.data[0], StoredData) and plan.data[0].training > 0
    assert planned_run(tiny_config, tiny_run.path, overwrite=False).beginning == "finished"
    anew = planned_run(tiny_config, tiny_run.path, overwrite=True)
    assert (anew.beginning, anew.newest_step, anew.phases[0].left) == ("deleted", 12, 12)
    assert isinstance(anew.data[0], UnpreparedData) and anew.vocabulary.source == "trained"


def test_data_of_other_settings_are_not_taken_for_those_of_the_run(tiny_config, tiny_run, tmp_path):
    shutil.copytree(tiny_run.path, tmp_path / "run", ignore=shutil.ignore_patterns("config.json", "checkpoints"))
    assert isinstance(planned_run(tiny_config, tmp_path / "run", overwrite=False).data[0], StoredData)
    other = tiny_config.replace(data=tiny_config.data.replace(dupe_factor=3))
    (data,) = planned_run(other, tmp_path / "run", overwrite=False).data
    assert isinstance(data, UnpreparedData) and data.replaces
    shutil.rmtree(tmp_path / "run/tokenizer")  # without which nothing is known of their settings
    assert isinstance(planned_run(other, tmp_path / "run", overwrite=False).data[0], StoredData)
