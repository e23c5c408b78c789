"""Pseudo-log-likelihoods by PyTorch and transformers, one masked row at a time."""

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
