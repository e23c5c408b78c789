"""What tests of whole runs share."""

import pytest
from conftest import prepared_copy
from stages import stopped_at

from bert_jax.pretraining.pretrain import pretrain


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
