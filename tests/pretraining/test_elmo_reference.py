"""ELMo against the package simple-elmo-pytorch, which reads our weights from a file in the format of ELMo's release."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elmo_models import CONFIG

h5py, torch = pytest.importorskip("h5py"), pytest.importorskip("torch")
pytest.importorskip("simple_elmo_pytorch")
from simple_elmo_pytorch import ElmoBiLmSentence, batch_to_ids

from bert_jax.layout import TokenSequence, lay_out_sequences
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.pretraining.initial import with_spelling
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

WORDS = ["the", "Straße", "cats", "自然", "x" * 60, "."]
SENTENCES = [["the", "cats", "Straße", "."], ["自然", "x" * 60]]
TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *WORDS]))
MODEL = CONFIG.replace(
    character_filters=(3, 4, 5), vocabulary_size=len(TOKENIZER.vocabulary), initializer_range=1.0, dropout=0.0
)


@pytest.fixture(scope="module")
def params():
    """Random parameters with biases, large enough for cells and projections to be clipped."""
    params = with_spelling(init(MODEL, jax.random.key(0)), MODEL, TOKENIZER)
    keys = iter(jax.random.split(jax.random.key(1), 100))

    def moved(path, leaf):
        is_constant = "spelling" in jax.tree_util.keystr(path)
        return jnp.asarray(leaf) if is_constant else leaf + 0.5 * jax.random.normal(next(keys), leaf.shape)

    return jax.tree_util.tree_map_with_path(moved, params)


@pytest.fixture(scope="module")
def reference(params, tmp_path_factory) -> ElmoBiLmSentence:
    """The package's model of `params`."""
    folder = tmp_path_factory.mktemp("elmo")
    embeddings, layers = params["bert"]["embeddings"], params["bert"]["encoder"]["layers"]
    size, cells = MODEL.input_size, MODEL.inner_size
    options = {
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": 16},
            "filters": [[width, count] for width, count in enumerate(MODEL.character_filters, 1)],
            "max_characters_per_token": 50,
            "n_characters": 261,
            "n_highway": MODEL.highways,
        },
        "lstm": {
            "cell_clip": 3,
            "proj_clip": 3,
            "dim": cells,
            "n_layers": MODEL.num_layers,
            "projection_dim": size,
            "use_skip_connections": True,
        },
    }
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        file["char_embed"] = embeddings["letters"][1:]  # the package adds a row for its mask
        for number in range(len(MODEL.character_filters)):
            file[f"CNN/W_cnn_{number}"] = embeddings[f"convolution_{number + 1}_kernel"][None]
            file[f"CNN/b_cnn_{number}"] = embeddings[f"convolution_{number + 1}_bias"]
        for number in range(MODEL.highways):
            for half, name in enumerate(("transform", "carry")):
                file[f"CNN_high_{number}/W_{name}"] = embeddings["highways_kernel"][number, half]
                file[f"CNN_high_{number}/b_{name}"] = embeddings["highways_bias"][number, half]
        file["CNN_proj/W_proj"], file["CNN_proj/b_proj"] = (
            embeddings["projection_kernel"],
            embeddings["projection_bias"],
        )
        for layer, direction in np.ndindex(MODEL.num_layers, 2):
            own = jax.tree.map(lambda leaf, at=(layer, direction): leaf[at], layers)
            matrices = [own[name]["kernel"].reshape(size, -1) for name in ("inputs", "recurrence")]
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            file[f"{cell}/W_0"], file[f"{cell}/B"] = jnp.concatenate(matrices), own["inputs"]["bias"].reshape(-1)
            file[f"{cell}/W_P_0"] = own["projection"]["kernel"]
    return ElmoBiLmSentence(str(folder / "options.json"), str(folder / "weights.hdf5")).eval()


def test_words_are_spelled_by_the_same_numbers(params):
    numbers = np.asarray(params["bert"]["spelling"]["numbers"])
    for word in WORDS:
        assert numbers[TOKENIZER.vocabulary.ids[word]].tolist() == batch_to_ids([[word]])[0, 0].tolist(), word


def test_every_layer_equals_the_packages(params, reference):
    vocabulary = TOKENIZER.vocabulary
    framed = [[vocabulary.cls_id, *map(vocabulary.ids.get, words), vocabulary.sep_id] for words in SENTENCES]
    sequences = [TokenSequence(ids, len(ids)) for ids in framed]
    tokens = jax.tree.map(jnp.asarray, lay_out_sequences(sequences, (len(framed), 6), vocabulary.pad_id))
    ours = BertForPretraining(MODEL).apply({"params": params}, tokens, return_layers=True, method="encode").layers
    with torch.no_grad():
        theirs = [layer.numpy() for layer in reference(batch_to_ids(SENTENCES))["activations"]]
    assert np.abs(theirs[1]).max() == 3.0, "no projection is clipped"
    for number, layer in enumerate(theirs):
        for row, ids in enumerate(framed):
            np.testing.assert_allclose(ours[number, row, : len(ids)], layer[row, : len(ids)], rtol=0, atol=1e-5)
