"""What `bert-jax inspect` shows, as facts."""

from bert_jax.pretraining.inspection import seen_sequences, training_batch


def test_the_truth_of_each_masked_piece_is_seen_beside_it(tiny_run):
    tokenizer, batch, targets, records = training_batch(tiny_run, 3)
    sequences = seen_sequences(tiny_run, 3, rows=100)
    assert [sequence.record for sequence in sequences] == records and len(sequences) == 8
    for row, sequence in enumerate(sequences):
        assert sequence.predicted == (targets.masked.weights[row] > 0).sum() and sequence.row_length == 32
        seen = [tokenizer.piece_text(number) for number in targets.masked.tokens.ids[row].tolist()]
        assert [piece.text for piece in sequence.pieces] == seen[: len(sequence.pieces)]
        true = [tokenizer.piece_text(number) for number in batch.tokens.ids[row].tolist()]
        for piece, stood_there in zip(sequence.pieces, true):
            assert stood_there == (piece.text if piece.truth is None else piece.truth)
        assert sequence.pieces[0].text == "[CLS]" and sequence.pieces[0].begins_word
        assert sequence.second_segment == ("random" if batch.pair_label[row, 0] else "following")
