"""Makes the golden files beside it: what transformers' BertForPreTraining computes with random weights.

    pip install torch transformers
    python tests/golden/make.py

A folder for each form of GELU: a model as transformers writes it (config.json, model.safetensors, vocab.txt), and
expected.safetensors with a batch, every layer's hidden states, both heads' logits and losses, every parameter's
gradient, and the losses of 20 optimizer steps. Only to be run where the files are to be made anew.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForPreTraining, PreTrainedModel

HERE = Path(__file__).parent
FORMS = {"gelu_erf": "gelu", "gelu_tanh": "gelu_new"}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
V, T, B, P, STEPS = 97, 20, 4, 4, 20
PEAK_RATE, WARMUP_STEPS, DECAY, EPSILON, BETA1, BETA2 = 5e-3, 4, 0.01, 1e-6, 0.9, 0.999


def randomize(model: PreTrainedModel, size: float = 0.15) -> PreTrainedModel:
    """Makes every parameter random: biases, and the norms' scales round 1."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
            parameter.copy_(mean + size * torch.randn(parameter.shape, generator=generator))
    return model


def write_pieces(folder: Path, count: int, pad: int = 0, special: Sequence[str] = SPECIAL) -> None:
    """Writes a vocab.txt of `count` pieces, the `special` ones first, of which that for padding is number `pad`."""
    pieces = [*special, *(f"piece{number}" for number in range(count - len(special)))]
    pieces[0], pieces[pad] = pieces[pad], pieces[0]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))


def model_of(hidden_act: str) -> PreTrainedModel:
    """A small model without dropout."""
    config = BertConfig(
        vocab_size=V,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=24,
        hidden_act=hidden_act,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return randomize(BertForPreTraining(config))


def batches(seed: int, count: int) -> dict[str, torch.Tensor]:
    """`count` rows: two segments, padding in most rows, P or fewer predicted positions; 0 in slots not used."""
    generator = torch.Generator().manual_seed(seed)
    rows = {name: [] for name in ("ids", "segments", "mask", "positions", "labels", "weights", "pair_label")}
    for row in range(count):
        length = T if row % B == 0 else int(torch.randint(T // 2, T, (1,), generator=generator))
        first, predicted = length // 3, P - row % 2
        at = torch.arange(T)
        ids = torch.randint(len(SPECIAL), V, (T,), generator=generator)
        positions = (torch.randperm(length - 1, generator=generator)[:predicted] + 1).sort().values
        unused = torch.zeros(P - predicted, dtype=torch.long)
        rows["labels"].append(torch.cat([ids[positions], unused]))
        ids[positions] = SPECIAL.index("[MASK]")
        rows["ids"].append(torch.where(at < length, ids, 0))
        rows["mask"].append(at < length)
        rows["segments"].append(((at >= first) & (at < length)).long())
        rows["positions"].append(torch.cat([positions, unused]))
        rows["weights"].append((torch.arange(P) < predicted).float())
        rows["pair_label"].append(torch.randint(0, 2, (), generator=generator))
    return {name: torch.stack(values) for name, values in rows.items()}


def labels_of(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The label of every token, as transformers' classes take them: -100 where nothing is predicted."""
    labels = torch.full_like(batch["ids"], -100)
    for row in range(len(labels)):
        used = batch["weights"][row] > 0
        labels[row, batch["positions"][row][used]] = batch["labels"][row][used]
    return labels


def losses(model: BertForPreTraining, batch: dict[str, torch.Tensor], **asked):
    """MLM and NSP loss of the class itself, and all it puts out."""
    labels = labels_of(batch)
    out = model(input_ids=batch["ids"], token_type_ids=batch["segments"], attention_mask=batch["mask"].long(), **asked)
    mlm = cross_entropy(out.prediction_logits.reshape(-1, V), labels.reshape(-1))
    return mlm, cross_entropy(out.seq_relationship_logits, batch["pair_label"]), out


def share_of_peak(step: int, warmup_steps: int, steps: int) -> float:
    """Our linear schedule. The original's begins at 0, and its line at step 0."""
    return min((step + 1) / warmup_steps, (steps - step) / (steps - warmup_steps + 1))


def train(model: BertForPreTraining, batch: dict[str, torch.Tensor]) -> list[float]:
    """The losses of STEPS steps of BERT's optimizer (optimization.py) with our schedule, each on the next B rows."""
    parameters = dict(model.named_parameters())
    mean = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    square = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    course = []
    for step in range(STEPS):
        rows = {name: values[step * B : (step + 1) * B] for name, values in batch.items()}
        model.zero_grad()
        mlm, nsp, _ = losses(model, rows)
        (mlm + nsp).backward()
        course.append((mlm + nsp).item())
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        rate = PEAK_RATE * share_of_peak(step, WARMUP_STEPS, STEPS)
        with torch.no_grad():
            for name, parameter in parameters.items():
                mean[name].mul_(BETA1).add_(parameter.grad, alpha=1 - BETA1)
                square[name].mul_(BETA2).addcmul_(parameter.grad, parameter.grad, value=1 - BETA2)
                update = mean[name] / (square[name].sqrt() + EPSILON)
                if not name.endswith("bias") and "LayerNorm" not in name:
                    update = update + DECAY * parameter
                parameter.sub_(rate * update)
    return course


def make(form: str) -> None:
    """Writes the folder of one form of GELU."""
    model, folder = model_of(FORMS[form]), HERE / form
    model.save_pretrained(folder)
    write_pieces(folder, V)
    batch = batches(seed=1, count=B)
    mlm, nsp, out = losses(model, batch, output_hidden_states=True)
    (mlm + nsp).backward()
    expected = {f"batch.{name}": values for name, values in batch.items()}
    expected |= {f"hidden.{number}": layer.detach() for number, layer in enumerate(out.hidden_states)}
    expected |= {"logits.mlm": out.prediction_logits.detach(), "logits.nsp": out.seq_relationship_logits.detach()}
    expected |= {"loss.mlm": mlm.detach(), "loss.nsp": nsp.detach()}
    expected |= {f"gradient.{name}": parameter.grad for name, parameter in model.named_parameters()}
    course = batches(seed=2, count=STEPS * B)
    expected |= {f"course.{name}": values for name, values in course.items()}
    expected["course.loss"] = torch.tensor(train(model, course), dtype=torch.float64)
    assert math.isfinite(expected["course.loss"].sum())
    save_file({name: value.contiguous() for name, value in expected.items()}, folder / "expected.safetensors")


if __name__ == "__main__":
    for form in FORMS:
        make(form)
