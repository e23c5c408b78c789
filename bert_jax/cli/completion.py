"""Shell completion: a short script for each shell, which gets the candidates from `bert-jax --complete WORDS`."""

from bert_jax.cli.commands import COMMANDS, COMPLETE, COMPLETION, HELP_FLAGS, arguments_of
from bert_jax.config.wording import first_sentence
from bert_jax.run.config_files import catalogue, names_for
from bert_jax.system.errors import UsageError

_BASH = f"""\
# Completion of bert-jax for bash: eval "$(bert-jax {COMPLETION} bash)" in ~/.bashrc
_bert_jax() {{
    local IFS=$'\\n' found files=""
    found=$("${{COMP_WORDS[0]}}" {COMPLETE} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null) || files=yes
    COMPREPLY=($(printf '%s\\n' "$found" | cut -f 1))
    [ -z "$files" ] || COMPREPLY+=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o filenames -F _bert_jax bert-jax"""
SCRIPTS = {
    "bash": _BASH,
    "zsh": f"""\
# For zsh: eval "$(bert-jax {COMPLETION} zsh)" in ~/.zshrc
autoload -U +X compinit && compinit -u
autoload -U +X bashcompinit && bashcompinit
{_BASH}""",
    "fish": f"""\
# Completion of bert-jax for fish: bert-jax {COMPLETION} fish > ~/.config/fish/completions/bert-jax.fish
function __bert_jax
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    $words[1] {COMPLETE} $words[2..] "$word" 2>/dev/null
    or __fish_complete_path "$word"
end
complete -c bert-jax -f -a '(__bert_jax)'""",
}
"""The completion script for each shell."""


def print_script(shell: str) -> None:
    """Prints the completion script for a shell. Raises UsageError for a shell that has none."""
    if shell not in SCRIPTS:
        raise UsageError(f"{COMPLETION} {shell or 'has no value'}: expected {' or '.join(SCRIPTS)}")
    print(SCRIPTS[shell])


def print_candidates(words: list[str]) -> int:
    """Prints the completions of the last of `words`, one per line, with a description after a tab.

    Returns an exit code: 1 if a file name is possible too, else 0.
    """
    found, files = _candidates(words)
    for candidate, text in found.items():
        if candidate.startswith(words[-1]):
            print(f"{candidate}\t{text}" if text else candidate)
    return int(files)


def _candidates(words: list[str]) -> tuple[dict[str, str], bool]:
    """The completions of the last of `words`, with their descriptions, and whether a file name is possible too."""
    *before, word = words
    if not before:
        return COMMANDS | dict.fromkeys(("help", "--help", "--version", COMPLETION), ""), False
    if before[0] not in COMMANDS:
        return {"help": COMMANDS, COMPLETION: dict.fromkeys(SCRIPTS, "")}.get(before[0], {}), False
    arguments = arguments_of(before[0])
    forms = dict.fromkeys((arguments, *arguments.VARIANTS.values()))
    flags = [flag for form in forms for flag in form.used_flags() if not flag.positional]
    for flag in flags:
        if before[-1] == f"--{flag.name}" and flag.kind.choices:
            return dict.fromkeys(map(str, flag.kind.choices), ""), False
    if word.startswith("-"):
        described: dict[str, str] = {}
        for flag in flags:
            names = [flag.name, flag.negative] if flag.is_switch else [flag.name]
            described |= dict.fromkeys((f"--{name}" for name in names), first_sentence(flag.help).rstrip("."))
        return described | dict.fromkeys(HELP_FLAGS[1:], ""), False
    configs: list[str] = []
    if len(before) == 1 and before[0] == "configs":
        configs = list(catalogue())
    elif len(before) == 1 and (defaults := arguments.defaults()):
        configs = names_for(type(defaults))
    return dict.fromkeys(configs, ""), True
