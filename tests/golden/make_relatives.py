"""Makes tests/golden/relatives: what transformers' classes of BERT's relatives compute with random weights.

    pip install torch transformers
    python tests/golden/make_relatives.py           # or the names of those to make

A folder for each: a model as transformers writes it (config.json, model.safetensors), its vocabulary, and
expected.safetensors with a batch, every layer's hidden states, the logits of every head, the loss, and every
parameter's gradient. XLNet's hidden states are those of the content stream and then those of the query stream. Only to
be run where the files are to be made anew.
"""

import copy
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from make import SPECIAL, B, T, V, batches, labels_of, randomize, write_pieces
from safetensors.torch import load_file, save_file
from sentencepiece.sentencepiece_model_pb2 import ModelProto
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
FAIRSEQ_PIECES = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
FAIRSEQ = {**FAIRSEQ_PIECES, "type_vocab_size": 1}


def rope(base: float) -> dict[str, float | str]:
    return {"rope_theta": base, "rope_type": "default"}


MODELS = {
    "roberta": ("RobertaForMaskedLM", {**SIZES, **FAIRSEQ, "layer_norm_eps": 1e-5}),
    "albert": ("AlbertForPreTraining", {**SIZES, "embedding_size": 20, "hidden_act": "gelu_new"}),
    "ernie": ("ErnieForMaskedLM", {**SIZES, "use_task_id": True, "task_type_vocab_size": 3}),
    "electra": ("ElectraForPreTraining", {**SIZES, "embedding_size": 20}),
    "electra_generator": ("ElectraForMaskedLM", {**SIZES, "embedding_size": 20}),
    "distilbert": (
        "DistilBertForMaskedLM",
        {"vocab_size": V, "dim": 36, "n_layers": 3, "n_heads": 3, "hidden_dim": 52, "max_position_embeddings": 27}
        | {"dropout": 0.0, "attention_dropout": 0.0, "sinusoidal_pos_embds": True},
    ),
    "mpnet": ("MPNetForMaskedLM", {**SIZES, "max_position_embeddings": 29, **FAIRSEQ_PIECES}),
    "nomic_bert": ("NomicBertForMaskedLM", {**SIZES, "rope_parameters": rope(700.0)}),
    "deberta": (
        "DebertaV2ForMaskedLM",
        {**SIZES, "relative_attention": True, "position_biased_input": False, "pos_att_type": "p2c|c2p"}
        | {"share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 6, "max_relative_positions": 19},
    ),
    "eurobert": (
        "EuroBertForMaskedLM",
        {name: value for name, value in SIZES.items() if "prob" not in name}
        | {"num_attention_heads": 6, "num_key_value_heads": 2, "pad_token_id": 0, "mask_token_id": 4}
        | {"bos_token_id": 2, "eos_token_id": 3, "rope_parameters": rope(900.0)},
    ),
    "modernbert": (
        "ModernBertForMaskedLM",
        {
            **{name: value for name, value in SIZES.items() if "prob" not in name},
            **{"num_hidden_layers": 5, "local_attention": 6, "global_rope_theta": 900.0, "local_rope_theta": 70.0},
            **{"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3},
        },
    ),
    "xlnet": (
        "XLNetLMHeadModel",
        {"vocab_size": V, "d_model": 30, "n_layer": 3, "n_head": 5, "d_inner": 44, "clamp_len": 9, "dropout": 0.0},
    ),
}
"""The class, and its settings: sizes that are no powers of two."""


def model_of(kind: str, settings: dict) -> transformers.PreTrainedModel:
    found = getattr(transformers, kind)
    return randomize(found(found.config_class(**settings))).eval()


XLNETS = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
"""The first pieces of its vocabulary."""
MPNETS = ("<pad>", "<s>", "</s>", "[UNK]", "<mask>")
"""The same of MPNet's, before its padding is made number 1."""


def write_spiece(folder: Path, count: int) -> None:
    """Writes XLNet's spiece.model of `count` pieces."""
    model = ModelProto()
    model.trainer_spec.model_type = 1
    kinds = [model.SentencePiece.UNKNOWN, *[model.SentencePiece.CONTROL] * 6, *[model.SentencePiece.USER_DEFINED] * 2]
    for piece, kind in zip(XLNETS, kinds, strict=True):
        model.pieces.add(piece=piece, score=0.0, type=kind)
    for number in range(count - len(XLNETS)):
        model.pieces.add(piece=f"\u2581{chr(ord('a') + number % 26) * (1 + number // 26)}", score=-1.0 - number)
    (folder / "spiece.model").write_bytes(model.SerializeToString(deterministic=True))


def permuted(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs of XLNet for `batch`, which gets the true pieces and `ranks`, the order of prediction.

    A query stream at every place: the first of its places isn't the first predicted one.
    """
    generator = torch.Generator().manual_seed(5)
    batch["ranks"], types = torch.full((B, T), -1), batch["segments"].clone()
    for row in range(B):
        used = batch["weights"][row] > 0
        places = batch["positions"][row][used]
        batch["ids"][row, places] = batch["labels"][row][used]
        batch["ranks"][row, places] = torch.randperm(len(places), generator=generator)
        types[row, int(batch["mask"][row].sum()) - 1] = 2  # [CLS]
    queries, keys = batch["ranks"][:, :, None], batch["ranks"][:, None]
    hidden = (keys >= 0) & (keys >= queries)
    mapping = torch.eye(T).expand(B, T, T)
    return {"token_type_ids": types, "perm_mask": hidden.float(), "target_mapping": mapping, "use_mems": False}


def gradients(model: transformers.PreTrainedModel) -> dict[str, torch.Tensor]:
    """The gradients by the names of their parameters in files, which a class may rename."""
    shaped, absent = copy.deepcopy(model), set[str]()
    for (name, parameter), source in zip(shaped.named_parameters(), model.parameters(), strict=True):
        absent |= {name} if source.grad is None else set()
        parameter.data = torch.zeros_like(source) if source.grad is None else source.grad
    with tempfile.TemporaryDirectory() as folder:
        shaped.save_pretrained(folder)
        found = load_file(Path(folder) / "model.safetensors")
    return {name: values for name, values in found.items() if name not in absent}


def make(name: str) -> None:
    """Writes the folder of one relative."""
    model, folder = model_of(*MODELS[name]), HERE / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    pad, of_xlnet = model.config.pad_token_id, name == "xlnet"
    if of_xlnet:
        write_spiece(folder, V)
    else:
        write_pieces(folder, V, pad, MPNETS if name == "mpnet" else SPECIAL)
    batch = batches(seed=1, count=B)
    batch["ids"] = torch.where(batch["mask"], batch["ids"], pad)
    labels = labels_of(batch)
    segments = {}
    if of_xlnet:
        segments = permuted(batch)
    elif getattr(model.config, "type_vocab_size", 0) > 1:
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
    layers = out.hidden_states
    if of_xlnet:  # the streams alternate
        layers = [torch.cat(streams, dim=1) for streams in zip(layers[::2], layers[1::2], strict=True)]
    expected |= {f"hidden.{number}": layer.detach() for number, layer in enumerate(layers)}
    expected |= {f"logits.{head}": values.detach() for head, values in logits.items()} | {"loss": loss.detach()}
    expected |= {f"gradient.{name}": values for name, values in gradients(model).items()}
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name)
