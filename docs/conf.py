"""Settings of the manual: python -m sphinx -W -b html docs build/docs"""

project = "bert_jax"
author = copyright = "The bert_jax authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
nitpicky = False
html_theme = "furo"
html_title = "bert_jax"
html_show_sphinx = False
autodoc_typehints = "none"  # array annotations are long; the docstrings give shapes and types
exclude_patterns = ["build"]
