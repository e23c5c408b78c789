"""A flag that has no effect beside the others is refused, with the reason."""

import pytest

from bert_jax.cli.main import run

PRETRAIN = ("pretrain", "tiny", "--workdir", "run")


@pytest.mark.parametrize(
    "words, expected",
    [
        (
            "--init x --vocabulary.sample-megabytes 9",
            "--vocabulary.sample-megabytes=9 has no effect: the vocabulary of --init=x",
        ),
        (
            "--init x --vocabulary.no-lowercase",
            "--vocabulary.no-lowercase has no effect: the vocabulary of --init=x, with",
        ),
        ("--init x --vocabulary.file y.txt --vocabulary.kind bpe", "--vocabulary.kind=bpe has no effect"),
        (
            "--vocabulary.file y.txt --vocabulary.size 99",
            "has no effect: the pieces of --vocabulary.file=y.txt are taken",
        ),
        ("--vocabulary.file y.json --vocabulary.lowercase", "--vocabulary.file=y.json says how text is cleaned; leave"),
        ("--optimizer.power 2", "--optimizer.power=2.0 has no effect: it needs --optimizer.schedule=polynomial"),
        ("--optimizer.decay-share 0.2", "has no effect: it needs --optimizer.schedule=warmup_stable_decay"),
        ("--objective.generator-weight 2", "has no effect: it needs --objective.predict=replaced"),
        ("--objective.tags-weight 2", "--objective.tags-weight=2.0 has no effect: it needs --objective.tags; leave"),
        ("--data.smoothing 0.5", "--data.smoothing=0.5 has no effect: it gives several sources their shares"),
        (
            "--model.causal --objective.predict next --objective.pair none --objective.masked-share 0.2",
            "--objective.masked-share=0.2 has no effect: every token is predicted",
        ),
    ],
)
def test_a_flag_without_effect_is_refused(words, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run([*PRETRAIN, *words.split()]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert expected in line and line.endswith("; leave it out") and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "--vocabulary.file y.txt --vocabulary.no-lowercase",
        "--optimizer.power 2 --optimizer.schedule polynomial",
        "--data.source text:a text:b --data.smoothing 0.5",
        "--vocabulary.size 9000 --vocabulary.no-lowercase",
    ],
)
def test_a_flag_with_an_effect_is_taken(words, capsys):
    assert run([*PRETRAIN, *words.split(), "--print-config"]) == 0


def test_a_probe_has_no_dropout(capsys):
    assert run(["finetune", "sst2", "--init", "x", "--workdir", "run", "--probe", "--dropout", "0.2"]) == 2
    assert "--dropout=0.2 has no effect: --probe trains without dropout; leave it out" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, expected",
    [
        (
            "adapt --init x --minutes 5 --phases.0.steps 9",
            "--phases.0.steps=9 has no effect: it is fitted to --minutes=5",
        ),
        ("scratch_small --minutes 5 --passes 2", "--passes=2.0 has no effect: it is fitted to --minutes=5"),
        ("scratch_small --phases.0.steps 9", "--phases.0.steps=9 has no effect: the steps follow from the words"),
    ],
)
def test_a_flag_of_what_is_fitted_is_refused(words, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, *others = words.split()
    assert run(["pretrain", name, "--workdir", "run", *others]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert expected in line and not list(tmp_path.iterdir())
