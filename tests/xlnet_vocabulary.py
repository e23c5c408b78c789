"""A spiece.model as XLNet's, made of that of ALBERT among the golden files."""

from pathlib import Path

from bert_jax.text.sentencepiece import read_model

FIRST = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
"""Its first pieces."""
_KINDS = {"<unk>": 2, "<eod>": 4, "<eop>": 4}
_SPECIAL_OF_ALBERT = 5


def write_xlnets_vocabulary(folder: Path, special=FIRST) -> int:
    """Writes a spiece.model with XLNet's special pieces, and returns its size."""
    model = read_model(Path(__file__).parent / "golden" / "tokenizers" / "spiece.model")
    ordinary = list(model.pieces)[_SPECIAL_OF_ALBERT:]
    del model.pieces[:]
    for piece in special:
        model.pieces.add(piece=piece, score=0.0, type=_KINDS.get(piece, 3))
    model.pieces.extend(ordinary)
    model.trainer_spec.unk_id = 0
    (folder / "spiece.model").write_bytes(model.SerializeToString(deterministic=True))
    return len(model.pieces)
