"""The version of bert_jax."""

__version__ = "0.1.0"
