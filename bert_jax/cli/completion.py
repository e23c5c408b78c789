"""Shell completion scripts, generated from the flags of the commands."""

import shlex

from bert_jax.cli.config_files import config_names, names_for
from bert_jax.cli.flags import Flag
from bert_jax.cli.main import COMMANDS, COMPLETION, HELP_FLAGS, command_module

SHELLS = ("bash", "zsh", "fish")

_BASH = """# Completion of bert-jax for bash: {how}
_bert_jax() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" choices=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W {commands} -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}} $before" in
{values}
    esac
    if [ -n "$choices" ]; then
        COMPREPLY=($(compgen -W "$choices" -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{flags}
    esac
    case "$word" in
        -*) ;;
        *) choices="" ;;
    esac
    if [ "$COMP_CWORD" -eq 2 ]; then
        case "${{COMP_WORDS[1]}}" in
{configs}
        esac
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
    case "$word" in
        -*) ;;
        *) COMPREPLY+=($(compgen -f -- "$word")) ;;
    esac
}}
complete -o filenames -F _bert_jax bert-jax"""


def completion(shell: str) -> str:
    """The completion script for `shell`, one of SHELLS."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def _bash() -> str:
    values, flags, configs = [], [], []
    for name in COMMANDS:
        command = command_module(name).COMMAND
        known = [flag for flag in command.shown(command.flags()) if not flag.positional]
        flags.append(f"        {name}) choices={shlex.quote(' '.join(_names(known)))} ;;")
        values += [
            f"        {shlex.quote(f'{name} --{flag.name}')}) choices={shlex.quote(_choices(flag))} ;;"
            for flag in known
            if flag.kind.choices
        ]
        if found := _configs(name, command.defaults):
            configs.append(f"            {name}) choices={shlex.quote(' '.join(found))} ;;")
    first = shlex.quote(" ".join(_first_words()))
    how = f'eval "$(bert-jax {COMPLETION} bash)" in ~/.bashrc'
    return _BASH.format(
        how=how, commands=first, values="\n".join(values), flags="\n".join(flags), configs="\n".join(configs)
    )


def _zsh() -> str:
    """The script for zsh: that for bash, which zsh's bashcompinit runs."""
    how = f'# For zsh: eval "$(bert-jax {COMPLETION} zsh)" in ~/.zshrc'
    return f"{how}\nautoload -U +X compinit && compinit -u\nautoload -U +X bashcompinit && bashcompinit\n{_bash()}"


def _fish() -> str:
    lines = [
        f"# Completion of bert-jax for fish: bert-jax {COMPLETION} fish > ~/.config/fish/completions/bert-jax.fish",
        "function __bert_jax_second; test (count (commandline -opc)) -eq 2; end",
    ]
    lines += [f"complete -c bert-jax -n __fish_use_subcommand -l {flag[2:]}" for flag in ("--help", "--version")]
    for name, about in COMMANDS.items():
        lines.append(f"complete -c bert-jax -f -n __fish_use_subcommand -a {name} -d {_fish_quoted(about)}")
        command, seen = command_module(name).COMMAND, f"__fish_seen_subcommand_from {name}"
        if found := _configs(name, command.defaults):
            lines.append(f"complete -c bert-jax -n '__bert_jax_second; and {seen}' -a {_fish_quoted(' '.join(found))}")
        for flag in command.shown(command.flags()):
            if not flag.positional:
                takes, told = _fish_takes(flag), _fish_quoted(flag.help.partition(". ")[0])
                for spelled in _spelled(flag):
                    lines.append(f"complete -c bert-jax -n '{seen}' -l {spelled[2:]}{takes} -d {told}")
        lines += [f"complete -c bert-jax -n '{seen}' -l {each[2:]}" for each in HELP_FLAGS[1:]]
    return "\n".join(lines)


def _fish_takes(flag: Flag) -> str:
    if flag.is_switch:
        return ""
    return f" -x -a {_fish_quoted(_choices(flag))}" if flag.kind.choices else " -r"


def _first_words() -> list[str]:
    return [*COMMANDS, "help", "--help", "--version", COMPLETION]


def _names(flags: list[Flag]) -> list[str]:
    return [*(name for flag in flags for name in _spelled(flag)), *HELP_FLAGS[1:]]


def _spelled(flag: Flag) -> list[str]:
    return [f"--{flag.name}", f"--{flag.negative}"] if flag.is_switch else [f"--{flag.name}"]


def _choices(flag: Flag) -> str:
    return " ".join(map(str, flag.kind.choices))


def _configs(name: str, defaults: object) -> list[str]:
    """Names of the configs that a command accepts."""
    if name == "configs":
        return config_names()
    return names_for(type(defaults)) if defaults else []


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
