"""Exports, loaded by sentence-transformers, and skipped without it: pip install sentence-transformers."""

import jax
import numpy as np
import pytest
from trained_tokenizers import trained

import bert_jax
from bert_jax.config.model import ModelConfig
from bert_jax.config.task import TaskConfig
from bert_jax.inference.batches import token_sequences
from bert_jax.interchange.export import write_model_directory
from bert_jax.interchange.relatives import RELATIVES
from bert_jax.layout import lay_out_sequences
from bert_jax.model.task import HeadShape, PooledEncoder, normalised, task_parameter_shapes

transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

TEXTS = ["A quick brown fox", "jumping foxes, over dogs!", "", "  中文 paper", "Zwölf Übungen " * 9]
LONGEST = 16
MODELS = {
    "bert": ("wordpiece", {}),
    "roberta": ("byte_bpe", {"num_segments": 1, "first_position": 2}),
    "electra": ("wordpiece", {"embedding_size": 12, "pooler": "gelu", "activation": "gelu_erf"}),
    "xlnet": ("unigram", RELATIVES["xlnet"].settings),
    "modernbert": ("byte_bpe", {**RELATIVES["modernbert"].settings, "local_window": 2, "global_every": 3}),
}
"""The tokenizer's kind and settings, by the kind of model."""


@pytest.mark.parametrize("pool", ["mean", "cls", "max"])
@pytest.mark.parametrize("model_type", MODELS)
def test_its_vectors_are_ours(model_type, pool, tmp_path):
    kind, settings = MODELS[model_type]
    tokenizer, rng = trained(kind).with_class_token(settings.get("class_token", "first")), np.random.default_rng(3)
    sizes = {"num_layers": 3, "hidden_size": 16, "num_heads": 2, "max_positions": 24}
    config = ModelConfig(**sizes, model_type=model_type, vocabulary_size=len(tokenizer.vocabulary), **settings)
    task = TaskConfig(name="near", kind="vectors", texts=("a", "b"), pool=pool, max_length=LONGEST)
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: rng.normal(path[-1].key == "scale", 0.2, leaf.shape).astype(np.float32),
        task_parameter_shapes(config, HeadShape.of(task)),
    )
    write_model_directory(tmp_path / "model", config, params, tokenizer, task)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert theirs.max_seq_length == LONGEST and len(theirs) == 3
    rows = list(token_sequences(TEXTS, tokenizer, LONGEST))
    tokens = lay_out_sequences(rows, (len(rows), LONGEST), tokenizer.vocabulary.pad_id)
    found = normalised(jax.jit(PooledEncoder(config, pool).apply)({"params": params}, tokens)[:, 0])
    np.testing.assert_allclose(found, theirs.encode(TEXTS), atol=1e-5)
    assert bert_jax.load(tmp_path / "model").task.pool == pool
    encoder = transformers.AutoModel.from_pretrained(tmp_path / "model")
    assert type(encoder).__name__ == f"{RELATIVES[model_type].classes}Model"
