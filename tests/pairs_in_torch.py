"""Pseudo-log-likelihoods and accuracies on minimal pairs by PyTorch and transformers, one masked row at a time."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from transformers import AutoModelForMaskedLM, AutoTokenizer


@torch.no_grad()
def pseudo_log_likelihoods(model: Path, texts: list[str], method: str) -> list[list[float]]:
    """The log probability of each token of each text; "word" masks the later pieces of its word, too."""
    tokenizer, network = AutoTokenizer.from_pretrained(model), AutoModelForMaskedLM.from_pretrained(model).eval()
    found = []
    for text in texts:
        encoded, logs = tokenizer(text, return_tensors="pt"), []
        ids, words = encoded["input_ids"], encoded.word_ids()
        for place in range(1, len(words) - 1):
            same = [at for at in range(place, len(words)) if at == place or words[at] == words[place]]
            masked = ids.clone()
            masked[0, same if method == "word" else place] = tokenizer.mask_token_id
            logs.append(network(input_ids=masked).logits[0, place].log_softmax(-1)[ids[0, place]].item())
        found.append(logs)
    return found


def accuracy(model: Path, file: Path, method: str) -> float:
    """The share of a file's pairs whose acceptable sentence has the higher score."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    good, bad = (
        pseudo_log_likelihoods(model, [row[f"sentence_{kind}"] for row in rows], method) for kind in ("good", "bad")
    )
    return sum(sum(one) > sum(other) for one, other in zip(good, bad)) / len(rows)
