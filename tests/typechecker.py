"""What checks annotations while the tests run: an int is also a float, as in Python's own typing rules."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
