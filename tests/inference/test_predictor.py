from bert_jax.inference.predictor import Predictor
from bert_jax.records.record import Record


class Echo(Predictor):
    """Predicts the values of each record."""

    def __init__(self):
        pass

    def predictions(self, records, repairs):
        for record in records:
            yield record, record.values


def test_halves_of_surrogate_pairs_in_given_rows_are_replaced_and_counted(capsys):
    rows = [Record("row 1", {"text": "a \ud800"}), Record("row 2", {"text": "b"}), Record("row 3", {"text": "\udc80"})]
    assert [*Echo().stream(rows)] == [{"text": "a \ufffd"}, {"text": "b"}, {"text": "\ufffd"}]
    assert "the rows: 2 texts with half a surrogate pair, replaced" in capsys.readouterr().err
