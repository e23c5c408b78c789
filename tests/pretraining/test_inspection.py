"""What `bert-jax inspect` shows, as facts."""

import numpy as np
import pytest
from conftest import command, faked_devices

from bert_jax.cli.sequence_view import print_sequences
from bert_jax.pretraining.inspection import SeenPiece, SeenSequence, seen_sequences, training_step


@pytest.mark.long
def test_the_truth_of_each_masked_piece_is_seen_beside_it(tiny_run):
    step = training_step(tiny_run, 3)
    sequences = seen_sequences(tiny_run, 3, rows=100)
    pieces = np.array(step.tokenizer.vocabulary.pieces)
    assert [sequence.record for sequence in sequences] == step.records and len(sequences) == 8
    for row, sequence in enumerate(sequences):
        length = int(step.batch.tokens.length[row, 0])
        assert sequence.number == 1 and sequence.row_length == 32 and len(sequence.pieces) == length
        seen = sequence.as_json()
        masked = step.targets.masked
        assert seen["predicted"] == masked.places[row][masked.weights[row] > 0].tolist()
        assert seen["input"] == pieces[masked.tokens.ids[row, :length]].tolist()
        assert seen["pieces"] == pieces[step.batch.tokens.ids[row, :length]].tolist()
        changed = [at for at, (true, given) in enumerate(zip(seen["pieces"], seen["input"])) if true != given]
        assert set(changed) <= set(seen["predicted"])
        assert seen["segments"] == step.batch.tokens.segment[row, :length].tolist()
        assert seen["positions"] == list(range(length))
        assert seen["pieces"][0] == "[CLS]" and sequence.pieces[0].begins_word
        assert sequence.second_segment == ("drawn at random" if seen["pair_label"] else "follows the first")
        assert seen["pair_label"] == step.batch.pair_label[row, 0]


@pytest.mark.long
def test_a_batch_that_this_machines_devices_cannot_share_is_seen(tiny_run):
    process = command("inspect", tiny_run.path, "--step", "3", **faked_devices(3))
    shown, _ = process.communicate()
    assert process.returncode == 0 and "[MASK]" in shown, shown


def test_units_cover_all_but_the_special_pieces(tiny_run):
    for sequence in seen_sequences(tiny_run, 1, rows=100):
        covered = [at for unit in sequence.units for at in range(unit.begin, unit.end)]
        special = [at for at, piece in enumerate(sequence.pieces) if piece.piece in ("[CLS]", "[SEP]")]
        assert sorted(covered + special) == list(range(len(sequence.pieces)))
        assert {unit.kind for unit in sequence.units} == {"piece"}


def sequence_of(*words: tuple[str, str | None, bool]) -> SeenSequence:
    """A sequence of pieces, each with its text, its true piece and whether it begins a word."""
    pieces = [SeenPiece(text, text, text, answer, 0, at, begins) for at, (text, answer, begins) in enumerate(words)]
    return SeenSequence(0, 1, pieces, 8, [], None, None)


def test_pieces_to_predict_and_words_that_began_before_the_sequence_are_told_apart(capsys):
    for begins_word in (True, False):
        print_sequences([sequence_of(("[CLS]", None, True), ("ing", "ing", begins_word), ("cat", None, True))])
    shown = capsys.readouterr().out
    assert "[CLS] ing/ing cat" in shown and "[CLS] ##ing/ing cat" in shown
    masked = [("man", None, True), ("[MASK]", "gh", False), ("as", None, False), ("set", None, False)]
    following = [("cat", "nap", True), ("nap", "s", False), ("s", None, False), ("end", None, True)]
    print_sequences([sequence_of(("[CLS]", None, True), *masked, *following)])
    assert "[CLS] man##[MASK]/gh##asset cat/nap##nap/s##s end" in capsys.readouterr().out
