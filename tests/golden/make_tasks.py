"""Makes the golden files of fine-tuning beside it: what transformers' classes and torch's AdamW make of 50 steps.

    pip install torch transformers
    python tests/golden/make_tasks.py

A folder for each kind of task: the model before the first step as transformers writes it (config.json,
model.safetensors, vocab.txt), and expected.safetensors with the batches of all steps, their losses, and every parameter
after the last one. No dropout. Rows are padded except for answers: transformers lets one begin at padding, bert_jax
doesn't. Only to be run where the files are to be made anew.
"""

import math
from pathlib import Path

import torch
from make import SPECIAL, randomize, share_of_peak, write_pieces
from safetensors.torch import save_file
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    PreTrainedModel,
)

HERE = Path(__file__).parent
CLASSES = {
    "class": BertForSequenceClassification,
    "tags": BertForTokenClassification,
    "span": BertForQuestionAnswering,
}
V, T, B, STEPS, LABELS = 41, 12, 4, 50, 3
PEAK_RATE, WARMUP_STEPS, DECAY, EPSILON, CLIP = 2e-3, 5, 0.1, 1e-8, 1.0
IGNORED = -100
Batch = dict[str, torch.Tensor]


def model_of(kind: str) -> PreTrainedModel:
    config = BertConfig(
        vocab_size=V,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=T,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=2 if kind == "span" else LABELS,
    )
    return randomize(CLASSES[kind](config), size=0.2)


def rows_of(kind: str, count: int) -> Batch:
    """`count` pairs whose label can be learned from their pieces; `first_length` is where the second begins."""
    generator = torch.Generator().manual_seed(1)
    at = torch.arange(T)
    length = torch.full((count,), T) if kind == "span" else torch.randint(T // 2, T + 1, (count,), generator=generator)
    first = length if kind == "tags" else length // 3
    inside = at < length[:, None]
    ids = torch.randint(len(SPECIAL), V, (count, T), generator=generator)
    ids = torch.where(inside, ids, 0)
    ids[:, 0] = SPECIAL.index("[CLS]")
    match kind:
        case "class":
            target = ids.sum(dim=1) % LABELS
            ids[:, 1] = len(SPECIAL) + target
        case "tags":
            asked = inside & (torch.rand((count, T), generator=generator) < 0.7)
            target = torch.where(asked, ids % LABELS, IGNORED)
        case "span":
            begin, more = torch.randint(1, T - 3, (count,), generator=generator), ids[:, 1] % 3
            target = torch.stack([begin, begin + more], dim=1)
            ids.scatter_(1, target[:, :1], SPECIAL.index("[MASK]"))
    return {"ids": ids, "length": length, "first_length": first, "target": target}


def loss_of(model: PreTrainedModel, kind: str, batch: Batch) -> torch.Tensor:
    """That of the class itself."""
    at = torch.arange(T)
    inside = at < batch["length"][:, None]
    segments = inside & (at >= batch["first_length"][:, None])
    target = batch["target"]
    labels = {"start_positions": target[:, 0], "end_positions": target[:, 1]} if kind == "span" else {"labels": target}
    return model(batch["ids"], inside.long(), segments.long(), **labels).loss


def train(model: PreTrainedModel, kind: str, rows: Batch) -> list[float]:
    """The losses of STEPS steps, each on the next B rows, as transformers' Trainer takes them."""
    exempt = {id(one) for name, one in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name}
    groups = [
        {"params": [one for one in model.parameters() if (id(one) in exempt) == spared], "weight_decay": decay}
        for spared, decay in ((False, DECAY), (True, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, eps=EPSILON)
    # Our line, which begins above 0; Trainer's begins at 0.
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share_of_peak(step, WARMUP_STEPS, STEPS))
    course, clipped = [], 0
    for step in range(STEPS):
        batch = {name: values[step * B : (step + 1) * B] for name, values in rows.items()}
        loss = loss_of(model, kind, batch)
        optimizer.zero_grad()
        loss.backward()
        clipped += bool(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP) > CLIP)
        optimizer.step()
        schedule.step()
        course.append(loss.item())
    print(f"{kind}: loss {course[0]:.3f} to {course[-1]:.3f}, gradients clipped in {clipped} of {STEPS} steps")
    assert math.isfinite(sum(course)) and clipped
    return course


def make(kind: str) -> None:
    """Writes the folder of one kind of task."""
    model, folder = model_of(kind), HERE / f"task_{kind}"
    model.save_pretrained(folder)
    write_pieces(folder, V)
    rows = rows_of(kind, STEPS * B)
    losses = train(model, kind, rows)
    expected = {f"rows.{name}": values.to(torch.int32) for name, values in rows.items()}
    expected["loss"] = torch.tensor(losses, dtype=torch.float64)
    expected |= {f"after.{name}": parameter.detach() for name, parameter in model.named_parameters()}
    save_file({name: value.contiguous() for name, value in expected.items()}, folder / "expected.safetensors")


if __name__ == "__main__":
    for kind in CLASSES:
        make(kind)
