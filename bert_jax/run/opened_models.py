"""The models and vocabularies of a command, each opened once.

The methods import what they need themselves: a command that opens no model needs neither JAX nor the tokenizers'
libraries.
"""

from typing import TYPE_CHECKING

from bert_jax.system.bucket import Place

if TYPE_CHECKING:
    from bert_jax.run.run_files import RunFiles
    from bert_jax.run.trained_model import TrainedModel
    from bert_jax.system.reading import Reading
    from bert_jax.text.tokenizer import Tokenizer


class OpenedModels:
    """The models and vocabularies that one command needs, each found, opened and checked once.

    A command makes one where it begins, and passes it to all that may need a model. A model is named as in the setting
    `init`.
    """

    def __init__(self) -> None:
        self._places: dict[str | Place, Place] = {}
        self._files: dict[Place, RunFiles] = {}
        self._opened: dict[Place, TrainedModel] = {}
        self.vocabularies: dict[object, tuple[Tokenizer, tuple[Reading, ...]]] = {}
        """The tokenizers of `vocabulary.file` that were read, and how their files were understood."""

    def files(self, name: str | Place) -> "RunFiles":
        """The files of a run, or of another program's model. Raises what `model_place` does."""
        from bert_jax.interchange.hub import model_place
        from bert_jax.run.run_files import RunFiles

        if name not in self._places:
            self._places[name] = model_place(name)
        place = self._places[name]
        return self._files.setdefault(place, RunFiles(place))

    def model(self, name: str | Place) -> "TrainedModel":
        """The model, as `TrainedModel.open` returns it. Raises what that and `model_place` do."""
        from bert_jax.run.trained_model import TrainedModel

        files = self.files(name)
        if files.path not in self._opened:
            self._opened[files.path] = TrainedModel.open(files)
        return self._opened[files.path]

    def tokenizer(self, name: str | Place) -> "Tokenizer":
        """The tokenizer of a model, or of a run without checkpoint. Raises what `model` does."""
        files = self.files(name)
        if files.published or files.path in self._opened:
            return self.model(name).tokenizer
        return files.tokenizer
