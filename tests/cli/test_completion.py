"""Completion, in the shells themselves."""

import os
import shutil
import subprocess
import sys

import pytest

from bert_jax.cli.completion import SCRIPTS, print_candidates

CANDIDATES = {
    "bert-jax pret": {"pretrain"},
    "bert-jax finetune ss": {"sst2"},
    "bert-jax pretrain demo --model.num-l": {"--model.num-layers"},
    "bert-jax pretrain demo --optimizer.name ": {"adamw", "lamb", "muon"},
    "bert-jax pretrain demo --logging.no-t": {"--logging.no-tensorboard"},
    "bert-jax evaluate run --l": {"--language"},
    "bert-jax help pre": {"pretrain", "prepare", "predict"},
    "bert-jax --print": {"--print-completion"},
    "bert-jax --print-completion ": {"bash", "zsh", "fish"},
}
BASH = """
COMP_WORDS=({line}) COMP_CWORD={last}
_bert_jax
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(shell: str, script: str, line: str) -> set[str]:
    if shell == "fish":
        lines = f"{script}\ncomplete -C '{line}'"
    else:
        words = line.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        call = BASH.format(line=quoted, last=len(words) - 1)
        # zsh's bashcompinit calls the function of bash so, and picks what begins with the word itself.
        emulated = f"asked() {{ emulate -L sh; setopt kshglob noshglob braceexpand\n{call}}}\nasked"
        lines = f"{script}\n{call if shell == 'bash' else emulated}"
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run([shell, *flags, "-c", lines], capture_output=True, text=True, timeout=30)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    found = {each.split("\t")[0] for each in done.stdout.split("\n") if each}
    return {each for each in found if each.startswith(line.split(" ")[-1])}


@pytest.mark.parametrize("line", CANDIDATES)
def test_commands_configs_settings_and_values_are_candidates(line, capsys):
    print_candidates(line.split(" ")[1:])
    assert {each.split("\t")[0] for each in capsys.readouterr().out.splitlines()} == CANDIDATES[line]


@pytest.mark.parametrize("shell", SCRIPTS)
@pytest.mark.long(first=1)
def test_a_shell_completes_settings_values_and_files(shell, tmp_path, monkeypatch):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    monkeypatch.chdir(tmp_path)
    script = SCRIPTS[shell]
    command = tmp_path / "bin" / "bert-jax"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m bert_jax "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    assert completed(shell, script, "bert-jax pretrain demo --model.num-l") == {"--model.num-layers"}
    (tmp_path / "own.py").touch()
    assert completed(shell, script, "bert-jax pretrain demo --execution.remat ") == {"none", "full", "dots"}
    if shell != "zsh":  # which completes files with its own widgets alone
        assert completed(shell, script, "bert-jax pretrain ow") == {"own.py"}


def test_script_help_and_configs_are_printed_in_a_process_that_loads_no_jax():
    lines = [["--print-completion", "bash"], ["pretrain", "--help"], ["finetune", "--help-all"], ["configs"]]
    script = f"import sys; from bert_jax.cli.main import run; print([run(line) for line in {lines}])"
    script += "; assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0 and done.stdout.endswith("\n[0, 0, 0, 0]\n"), done.stderr
