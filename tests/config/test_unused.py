"""A flag that has no effect beside the others is refused, with the reason."""

import pytest

from bert_jax.cli.main import run


@pytest.mark.parametrize(
    "words, flag, reason",
    [
        (
            "tiny --init x --vocabulary.sample-megabytes 9",
            "--vocabulary.sample-megabytes=9",
            "the vocabulary of --init=x",
        ),
        ("tiny --init x --vocabulary.no-lowercase", "--vocabulary.no-lowercase", "the vocabulary of --init=x, with"),
        ("tiny --init x --vocabulary.file y.txt --vocabulary.kind bpe", "--vocabulary.kind=bpe", ""),
        ("tiny --vocabulary.file y.txt --vocabulary.size 99", "", "the pieces of --vocabulary.file=y.txt are taken"),
        ("tiny --vocabulary.file y.json --vocabulary.lowercase", "", "--vocabulary.file=y.json says how text is "),
        ("tiny --optimizer.power 2", "--optimizer.power=2.0", "it needs --optimizer.schedule=polynomial"),
        ("tiny --optimizer.decay-share 0.2", "", "it needs --optimizer.schedule=warmup_stable_decay"),
        ("tiny --objective.generator-weight 2", "", "it needs --objective.predict=replaced"),
        ("tiny --objective.tags-weight 2", "--objective.tags-weight=2.0", "it needs --objective.tags; leave"),
        ("tiny --data.smoothing 0.5", "--data.smoothing=0.5", "it gives several sources their shares"),
        ("gpt_ltr --objective.masked-share 0.2", "--objective.masked-share=0.2", "every token is predicted"),
        # What is fitted is no flag's.
        ("adapt --init x --minutes 5 --phases.0.steps 9", "--phases.0.steps=9", "it is fitted to --minutes=5"),
        ("scratch_small --minutes 5 --phases.0.steps 9", "--phases.0.steps=9", "it is fitted to --minutes=5"),
        ("scratch_small --phases.0.steps 9", "--phases.0.steps=9", "the steps follow from the words"),
        ("tiny --evaluation.watch", "--evaluation.watch", "it compares with the model of --init"),
        ("tiny --model.highways 4", "--model.highways=4", "it needs --model.character-filters"),
        ("tiny --model.rotary-base 160000", "", "it needs --model.positions=rotary"),
        ("tiny --vocabulary.kind byte_bpe --vocabulary.character-coverage 0.95", "", "a byte-level vocabulary has all"),
        (
            "tiny --data.source text:a text:b --data.weights 1 2 --phases.0.smoothing 0.3",
            "--phases.0.smoothing=0.3",
            "it gives several",
        ),
        ("sst2 --init x --task.temperature 0.2", "", "it is for --task.kind=vectors"),
        ("sst2 --init x --task.span.stride 9", "--task.span.stride=9", "it is for --task.kind=span"),
        ("sst2 --init x --task.label-separator ;", "", "it is for --task.kind=labels"),
        ("sst2 --init x --probe --dropout 0.2", "--dropout=0.2", "--probe trains without dropout; leave"),
    ],
)
def test_a_flag_without_effect_is_refused(words, flag, reason, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = "finetune" if words.startswith("sst2") else "pretrain"
    assert run([command, *words.split(), "--workdir", "run"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"{flag} has no effect: {reason}" in line and line.endswith("; leave it out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "scratch_small --minutes 5 --passes 2",  # the most passes
        "scratch_small --minutes 5 --phases.0.batch-size 24",  # of which the fitted batch is a multiple
        "tiny --vocabulary.file y.txt --vocabulary.no-lowercase",
        "tiny --optimizer.power 2 --optimizer.schedule polynomial",
        "tiny --data.source text:a text:b --data.smoothing 0.5",
        "tiny --vocabulary.size 9000 --vocabulary.no-lowercase",
        "experiments/modern --model.rotary-base 160000",
    ],
)
def test_a_flag_with_an_effect_is_taken(words, capsys):
    assert run(["pretrain", *words.split(), "--workdir", "run", "--print-config"]) == 0
