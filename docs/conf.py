"""Settings of the manual: python -m sphinx -W -b html docs build/docs"""

import itertools
import operator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

project = "bert_jax"
author = copyright = "The bert_jax authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
nitpicky = False
html_theme = "furo"
html_title = "bert_jax"
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["manual.css"]
autodoc_typehints = "none"  # array annotations are long; the docstrings give shapes and types
exclude_patterns = ["build"]


class SettingsTables(SphinxDirective):
    """`{settings} MODULE.CLASS`: a table of each group of the settings of a command's CONFIG, from their docstrings.

    Settings with the same name, meaning and default as in an earlier table of the page are left out.
    """

    required_arguments = 1

    def run(self):
        from importlib import import_module

        from bert_jax.cli.flags import flags_of

        module, _, name = self.arguments[0].rpartition(".")
        command = getattr(import_module(module), name)
        shown = self.env.temp_data.setdefault("settings", set())
        flags = [
            flag
            for flag in flags_of(command, command.model_fields["config"].default)
            if not (flag.of_command or (flag.name, flag.help, flag.default_in_words) in shown)
        ]
        shown.update((flag.name, flag.help, flag.default_in_words) for flag in flags)
        groups = [(flag.name.rpartition(".")[0], flag.group, flag) for flag in flags]
        groups.sort(key=lambda each: each[0] != "")  # settings without a group come first
        text = ""
        for (group, about), members in itertools.groupby(groups, operator.itemgetter(0, 1)):
            text += f"**{group}**: {about}\n\n" if group else ""
            text += "| setting | default | meaning |\n|---|---|---|\n"
            for *_, flag in members:
                default = flag.default_in_words.removeprefix(" (default: ").removeprefix(" (").removesuffix(")")
                usage = flag.usage.replace("|", "\\|")
                text += f"| `{usage}` | {_cell(default)} | {_cell(flag.help)} |\n"
            text += "\n"
        tables = nodes.container(classes=["settings"])
        tables += self.parse_text_to_nodes(text)
        return [tables]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;").replace("$", "\\$")


def setup(app: Sphinx) -> None:
    """Registers the directive."""
    app.add_directive("settings", SettingsTables)
