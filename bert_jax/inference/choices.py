"""The allowed values of the settings that choose the vectors of texts."""

from typing import Literal

Join = Literal["concat", "sum", "mean", "none"]
"""How a token's vectors of several layers are joined: concatenated, added, averaged, or kept separate."""
Pool = Literal["none", "cls", "mean", "max"]
"""How a text's vectors are pooled: not at all, the vector of [CLS], or the mean or maximum over all tokens.

In a causal model the last token replaces [CLS], since the first token can't attend to the others."""
Precision = Literal["float32", "float16"]
"""Type of the returned or written numbers."""
