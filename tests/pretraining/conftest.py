"""What tests of whole runs share."""

import numpy as np
import pytest
from conftest import prepared_copy
from stages import stopped_at, train_on_eight

from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.metrics import read_metrics


@pytest.fixture
def resumed(tmp_path):
    """Trains with the tokenizer and the data of another run, is stopped in a step, and goes on to the end."""

    def train(config, step, prepared):
        run = prepared_copy(prepared, tmp_path / "resumed")
        with stopped_at(step):
            pretrain(config, run)
        pretrain(config, run)
        return run

    return train


@pytest.fixture
def check_on_eight(tmp_path):
    """Trains on eight devices, and compares these measurements of the training with those of a run on one device."""

    def check(config, run, *names):
        train_on_eight(config, tmp_path / "eight")
        for name in names:
            on_eight, on_one = (
                [line[name] for line in read_metrics(path / "metrics.jsonl") if line["split"] == "train"]
                for path in (tmp_path / "eight", run.path)
            )
            np.testing.assert_allclose(on_eight, on_one, rtol=2e-4, err_msg=name)

    return check
