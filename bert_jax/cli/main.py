"""The command `bert-jax`."""

import logging
import os
import re
import sys
import traceback

from bert_jax.cli.arguments import Arguments
from bert_jax.cli.commands import COMMANDS, COMPLETE, COMPLETION, HELP_FLAGS, arguments_of
from bert_jax.system import interruption
from bert_jax.system.errors import BertJaxError, UsageError, disk_error_number, disk_failure
from bert_jax.system.machine import environment_fault, prepare_to_compute
from bert_jax.system.version import __version__

CLOSED_PIPE = 141
"""Exit code if the reader of the output has ended, as in `bert-jax params CONFIG.py | head -1`: the code that a shell
reports after SIGPIPE (13). (The signal itself stays ignored: any broken socket would end a training.)"""
_TALKATIVE = "absl", "asyncio"
"""Loggers that get a traceback for each failed write, from Orbax and from tasks that it leaves running."""
_OF_INPUT = re.compile(r"(?<![^\s(])--((?:data|task)\.[a-z][a-z.-]*[a-z])")
"""Matches a flag --data.NAME or --task.NAME in a message."""
_NO_ADVICE = re.compile(r"did you mean --\S+|bert-jax [a-z]+ .*")
"""Matches what a message says of flags that aren't meant for the command: a misspelled one, or those of a command line.
"""
_OF_OTHERS = re.compile(r"--\S+(?: or --\S+)* of [a-z]+")
"""Matches flags in a message that names their command."""
_LATE = "Event loop is closed"
"""Error of a tensorstore thread that finishes a write after Orbax has given up the checkpoint."""


def main() -> None:
    """Entry point of the shell command. Exits with the code that `run` returns, or with CLOSED_PIPE."""
    if sys.stdin is None:  # closed: the next pipe would get file descriptor 0, and reading it would never end
        os.open(os.devnull, os.O_RDONLY)
    if computes(sys.argv[1:]):
        prepare_to_compute()
    interruption.listen()
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it exits, and would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = CLOSED_PIPE
    except Exception:
        if not _is_one_of_several():
            raise
        traceback.print_exc()
        code = 1
    interruption.exit_soon(code)
    if code and _is_one_of_several():
        os._exit(code)  # JAX would wait for the other processes, which don't exit
    sys.exit(code)


def _is_one_of_several() -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()


def computes(arguments: list[str]) -> bool:
    """Whether a command line does more than print help, a version or configs."""
    return bool(arguments) and arguments[0] in COMMANDS.keys() - {"configs"} and not {*HELP_FLAGS} & {*arguments}


def run(arguments: list[str]) -> int:
    """Runs a command and returns its exit code: 0 done, 1 a failed run, 2 wrong use, 143 stopped by a signal.

    A second Ctrl-C during the command ends the process with 130.
    """
    name, *rest = arguments or [""]
    if name == "help":  # help COMMAND is COMMAND --help
        name, *rest = [*rest, "--help"]
    if not arguments or name in HELP_FLAGS:
        print(_overview())
        return 0 if arguments else UsageError.exit_code
    if name in ("--version", "-V", "version"):
        print(f"bert-jax {__version__}")
        return 0
    quieten_libraries()
    flag, _, value = name.partition("=")
    try:
        if flag in (COMPLETION, COMPLETE):
            from bert_jax.cli import completion

            if flag == COMPLETE:
                return completion.print_candidates(rest or [""])
            completion.print_script(value or " ".join(rest))
        else:
            command = arguments_of(name)
            asked = (command.VARIANTS.get(word.partition("=")[0]) for word in rest)
            form = next(filter(None, asked), command)
            form.parse(rest).execute()
    except SystemExit as end:  # --help
        return int(end.code or 0)
    except BaseException as error:
        return _failed(error, name, rest)
    finally:
        interruption.stop_raising()
    return 0


def _overview() -> str:
    commands = "\n".join(f"  {name:10} {text}" for name, text in COMMANDS.items())
    return (
        f"usage: bert-jax COMMAND ...\n\n{commands}\n\n"
        "bert-jax COMMAND --help         the settings that people change first (bert-jax help COMMAND does the same)\n"
        "bert-jax COMMAND --help-all     all settings\n"
        "bert-jax --version              the version\n"
        f"bert-jax {COMPLETION} SHELL  completion for bash, zsh or fish, with how to turn it on"
    )


def _failed(error: BaseException, name: str, words: list[str]) -> int:
    """Prints in one line why a command failed, and returns its exit code. Raises errors that only a bug can cause."""
    # Imported here because rich and pydantic load slowly: `bert-jax` alone and --version don't need them.
    from bert_jax.system.bucket import bucket_failure
    from bert_jax.system.progress import complain, say

    ours = isinstance(error, BertJaxError)
    if interruption.interrupted(error) or not ours and interruption.raised():
        interruption.stop_raising()
        has_workdir = any(word.partition("=")[0] == "--workdir" for word in words)
        again = "to go on" if has_workdir else "to do it from its beginning"
        say(f"bert-jax: interrupted; give the same command again {again}")
        return 143
    if not isinstance(error, (BertJaxError, BrokenPipeError)):
        error = disk_failure(error) or environment_fault(error) or bucket_failure(error) or error
    if not isinstance(error, BertJaxError):
        raise error
    complain(f"{error}{_lacking(name, words, str(error))}" if name in COMMANDS else str(error))
    return error.exit_code


def _lacking(name: str, words: list[str], message: str) -> str:
    """What to append to an error message that advises flags of input which the command `name`, called with `words`,
    doesn't have; otherwise empty."""
    command = arguments_of(name)
    known = {name for flag in command.flags() for name in (flag.name, flag.negative)} | command.ALIASES.keys()
    known |= {word.removeprefix("--").partition("=")[0] for word in words}  # a misspelled flag is no advice
    message = _NO_ADVICE.sub("", message)
    if command.WITHOUT_FLAG == Arguments.WITHOUT_FLAG:  # there is no other place for the settings of other commands
        message = _OF_OTHERS.sub("", message)
    advised = _OF_INPUT.findall(message)
    lacking = [flag for flag in dict.fromkeys(advised) if flag not in known]
    return f" ({name} has no flag --{' and --'.join(lacking)}: {command.WITHOUT_FLAG})" if lacking else ""


def quieten_libraries() -> None:
    """Silences the loggers _TALKATIVE and known unraisable exceptions; to be called once in a process."""
    for library in _TALKATIVE:
        logging.getLogger(library).setLevel(logging.CRITICAL)
    sys.unraisablehook = _print_unraisable


def _print_unraisable(unraisable) -> None:
    """Prints the traceback of an exception that nothing can catch, as Python does, except for known ones.

    They need no traceback: an interruption is raised again elsewhere, and a failed write is reported by its caller.
    """
    error = unraisable.exc_value
    known = interruption.interrupted(error) or str(error) == _LATE or (error and disk_error_number(error))
    if not known:
        sys.__unraisablehook__(unraisable)
