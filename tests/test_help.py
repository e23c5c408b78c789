"""What help(bert_jax) shows, and what an import of the package costs."""

import pydoc
import subprocess
import sys

import bert_jax


def test_help_shows_the_classes_with_their_methods():
    shown = pydoc.plain(pydoc.render_doc(bert_jax))
    for name in ("class Bert(", "fill_mask(", "encode_stream(", "class Tokenizer(", "load_tokenizer("):
        assert name in shown


def test_the_import_loads_no_library():
    light = "import sys, bert_jax; assert not {'jax', 'numpy', 'tokenizers'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", light], check=True)
