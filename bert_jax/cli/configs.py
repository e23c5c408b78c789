"""bert-jax configs [NAME]: lists the configs that come with bert-jax, or prints one."""

import tyro

from bert_jax.cli.arguments import Arguments, Command
from bert_jax.cli.config_files import TASKS, absent, config_names, configs_directory, find_config, summary


class Configs(Arguments):
    """Arguments of bert-jax configs."""

    name: tyro.conf.Positional[str] = ""
    """Config to print, for a copy: bert-jax configs demo > mine.py. Without it: list all names."""


COMMAND = Command("configs", Configs, "List the configs that come with bert-jax. With NAME: print one, for a copy.")


def run(arguments: list[str]) -> None:
    """Parses the command line, then lists the configs or prints one."""
    name = COMMAND.parse(arguments).name
    if name:
        path = find_config(name)
        if path is None:
            raise absent(name, config_names())
        print(path.read_text(encoding="utf-8"), end="")
        return
    names = config_names()
    _print_group("bert-jax pretrain CONFIG --workdir RUN", [name for name in names if not name.startswith(f"{TASKS}/")])
    print()
    of_tasks = [name for name in names if name.startswith(f"{TASKS}/")]
    _print_group("bert-jax finetune CONFIG --init RUN --workdir RUN2", of_tasks)
    print("\nbert-jax configs NAME > mine.py copies one.")


def _print_group(heading: str, names: list[str]) -> None:
    width = max(len(name.removeprefix(f"{TASKS}/")) for name in names)
    print(f"{heading}\n")
    for name in names:
        print(f"  {name.removeprefix(f'{TASKS}/'):{width}}  {summary(configs_directory() / f'{name}.py')}")
