"""bert-jax configs [NAME]: lists the configs that come with bert-jax, or prints one."""

from bert_jax.cli.arguments import Arguments
from bert_jax.cli.flags import Positional
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.run import RunConfig
from bert_jax.run.config_files import absent, catalogue, config_source, find_config, names_for, suite_file, suite_names


class Configs(Arguments):
    """List the configs and suites that come with bert-jax. With NAME: print all settings of one as a config file, or a
    suite."""

    LINE = "bert-jax configs"

    name: Positional[str] = ""
    """Config or suite to print, a config with all its settings: bert-jax configs demo > mine.py. suites/NAME names a
    suite that has the name of a config, too. Without it: list all names."""

    def execute(self) -> None:
        found, suite = find_config(self.name) if self.name else None, self.name.removeprefix("suites/")
        if found:
            print(config_source(found.config, found.text), end="")
            return
        if suite in suite_names():
            print(suite_file(suite).read_text(encoding="utf-8"), end="")
            return
        if self.name:
            raise absent(self.name, list(catalogue()))
        _print_group("bert-jax pretrain CONFIG --workdir RUN", _summaries(names_for(RunConfig)))
        _print_group("bert-jax finetune CONFIG --init RUN --workdir RUN2", _summaries(names_for(FinetuneConfig)))
        suites = {name: suite_file(name).read_text(encoding="utf-8").partition("\n")[0] for name in suite_names()}
        _print_group(
            "bert-jax suite FILE --workdir W", {name: first.removeprefix("# ") for name, first in suites.items()}
        )
        print("bert-jax configs NAME > mine.py writes all settings of one into a file to change.")


def _summaries(names: list[str]) -> dict[str, str]:
    return {name: found.summary for name in names if (found := find_config(name))}


def _print_group(heading: str, summaries: dict[str, str]) -> None:
    """Prints the names under the command that takes them, each with its summary."""
    width = max(map(len, summaries))
    print(f"{heading}\n")
    for name, summary in summaries.items():
        print(f"  {name:{width}}  {summary}")
    print()
