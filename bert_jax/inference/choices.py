"""The words by which vectors of texts are chosen."""

from typing import Literal

Join = Literal["concat", "sum", "mean", "none"]
"""What becomes of a token's vectors from several layers: one behind the other, added, averaged, or kept apart."""
Pool = Literal["none", "cls", "mean", "max"]
"""What stands for a text: every token's vector, that of [CLS] (of the last token in a causal model, whose first one has
seen nothing), or the mean or maximum of all tokens'."""
Precision = Literal["float32", "float16"]
"""Type of the numbers that are written."""
