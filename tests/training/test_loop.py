"""The training loop from the outside."""

import pytest

from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.checkpoint import Checkpoints
from bert_jax.training import loop


@pytest.mark.parametrize("method, where", [("restore", "reading the"), ("finish", "finishing the")])
def test_the_watchdog_watches_from_the_first_read_to_the_last_checkpoint(
    tiny_config, untrained, monkeypatch, method, where
):
    watching = []

    class Watchdog(loop.Watchdog):
        def __enter__(self):
            watching.append(True)
            return super().__enter__()

        def __exit__(self, *raised):
            watching.clear()
            super().__exit__(*raised)

    class Seen(Exception):
        pass

    def look(*_):
        raise Seen(f"{watching} {loop.here.text}")

    monkeypatch.setattr(loop, "Watchdog", Watchdog)
    monkeypatch.setattr(Checkpoints, method, look)
    with pytest.raises(Seen, match=rf"\[True\] {where} \w+ checkpoint"):
        pretrain(tiny_config, untrained)
    assert not watching
