"""Settings of the manual: python -m sphinx -W -b html docs build/docs"""

project = "bert_jax"
author = copyright = "The bert_jax authors"
extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = False
html_theme = "furo"
html_title = "bert_jax"
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["manual.css"]
exclude_patterns = ["build"]
