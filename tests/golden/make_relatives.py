"""Makes tests/golden/relatives: what transformers' classes of BERT's relatives compute with random weights.

    pip install torch transformers
    python tests/golden/make_relatives.py           # or the names of those to make

A folder for each: a model as transformers writes it (config.json, model.safetensors), vocab.txt, and
expected.safetensors with a batch, every layer's hidden states, the logits of every head, the loss, and every
parameter's gradient. Only to be run where the files are to be made anew.
"""

import sys
from pathlib import Path

import torch
import transformers
from make import B, T, V, batches, randomize, write_pieces
from safetensors.torch import save_file
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

HERE = Path(__file__).parent / "relatives"
SIZES = {
    "vocab_size": V,
    "hidden_size": 36,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 52,
    "max_position_embeddings": 27,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
FAIRSEQ = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
MODELS = {
    "roberta": ("RobertaForMaskedLM", {**SIZES, **FAIRSEQ, "layer_norm_eps": 1e-5}),
    "albert": ("AlbertForPreTraining", {**SIZES, "embedding_size": 20, "hidden_act": "gelu_new"}),
    "ernie": ("ErnieForMaskedLM", {**SIZES, "use_task_id": True, "task_type_vocab_size": 3}),
    "electra": ("ElectraForPreTraining", {**SIZES, "embedding_size": 20}),
    "electra_generator": ("ElectraForMaskedLM", {**SIZES, "embedding_size": 20}),
    "modernbert": (
        "ModernBertForMaskedLM",
        {
            **{name: value for name, value in SIZES.items() if "prob" not in name},
            **{"num_hidden_layers": 5, "local_attention": 6, "global_rope_theta": 900.0, "local_rope_theta": 70.0},
            **{"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3},
        },
    ),
}
"""The class, and its settings: sizes that are no powers of two."""


def model_of(kind: str, settings: dict) -> transformers.PreTrainedModel:
    found = getattr(transformers, kind)
    return randomize(found(found.config_class(**settings))).eval()


def make(name: str) -> None:
    """Writes the folder of one relative."""
    model, folder = model_of(*MODELS[name]), HERE / name
    model.save_pretrained(folder)
    pad = model.config.pad_token_id
    write_pieces(folder, V, pad)
    batch = batches(seed=1, count=B)
    batch["ids"] = torch.where(batch["mask"], batch["ids"], pad)
    labels = torch.full((B, T), -100)
    for row in range(B):
        used = batch["weights"][row] > 0
        labels[row, batch["positions"][row][used]] = batch["labels"][row][used]
    segments = {}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        segments = {"token_type_ids": batch["segments"]}
    else:
        batch["segments"] = torch.zeros_like(batch["segments"])
    replaced = torch.randint(0, 2, (B, T), generator=torch.Generator().manual_seed(3))
    out = model(input_ids=batch["ids"], attention_mask=batch["mask"].long(), output_hidden_states=True, **segments)
    logits = {"mlm": out.prediction_logits if "prediction_logits" in out else out.logits}
    if MODELS[name][0] == "ElectraForPreTraining":
        logits = {"replaced": out.logits}
        batch["replaced"] = replaced * batch["mask"]
        loss = binary_cross_entropy_with_logits(out.logits[batch["mask"]], batch["replaced"][batch["mask"]].float())
    else:
        loss = cross_entropy(logits["mlm"].reshape(-1, V), labels.reshape(-1))
    if "sop_logits" in out:
        logits["pair"] = out.sop_logits
        loss = loss + cross_entropy(out.sop_logits, batch["pair_label"])
    loss.backward()
    expected = {f"batch.{key}": values for key, values in batch.items()}
    expected |= {f"hidden.{number}": layer.detach() for number, layer in enumerate(out.hidden_states)}
    expected |= {f"logits.{head}": values.detach() for head, values in logits.items()} | {"loss": loss.detach()}
    expected |= {
        f"gradient.{key}": parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None
    }
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name)
