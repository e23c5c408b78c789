"""What SIGTERM and Ctrl-C do to a command, whenever they come."""

import signal
import subprocess
import sys
import time

import pytest
from conftest import program

from bert_jax.system import interruption

BEGINNING = """
import atexit, os, signal, sys, time
from bert_jax.cli.params import Params
from bert_jax.cli.main import main

def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), getattr(signal, number))
        time.sleep(0.3)

"""
END = """
Params.execute = work
sys.argv[1:] = ["params", "demo"]
main()
"""


def ends(work):
    """Exit code, standard output and the lines of standard error of a command that does `work`."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = program(BEGINNING + work + END, **pipes)
    output, said = process.communicate(timeout=50)
    return process.returncode, output, said.splitlines()


@pytest.mark.long
def test_an_interruption_that_is_swallowed_comes_again():
    """As in a callback of the garbage collector."""
    work = """
class Swallows:
    def __del__(self):
        send("SIGTERM")

def work(_):
    Swallows()
    try:
        time.sleep(60)
    finally:
        time.sleep(1.2)  # longer than until the signal is sent again
        print("cleaned up", flush=True)
"""
    code, output, lines = ends(work)
    assert (code, output, len(lines)) == (143, "cleaned up\n", 1)


def test_an_interruption_within_a_deferred_block_is_raised_after_it():
    work = """
from bert_jax.system.interruption import deferred

def work(_):
    with deferred():
        send("SIGTERM")
        print("block is whole", flush=True)
    time.sleep(60)
"""
    code, output, lines = ends(work)
    assert (code, output, len(lines)) == (143, "block is whole\n", 1)


def test_an_error_without_its_cause_that_an_interruption_became_is_the_interruption():
    """As of an extension module that is interrupted while it loads."""
    work = """
def work(_):
    try:
        send("SIGTERM")
    except KeyboardInterrupt:
        pass
    raise ImportError("Encountered an error while initializing the extension.")
"""
    code, _, lines = ends(work)
    assert (code, len(lines)) == (143, 1) and "interrupted" in lines[0]


@pytest.mark.parametrize("first, then", [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGTERM")])
def test_a_second_sigterm_changes_nothing_while_a_command_cleans_up_or_ends(first, then):
    work = f"""
atexit.register(send, "{then}", "{then}")

def work(_):
    try:
        send("{first}")
    finally:
        send("{then}")
        time.sleep(0.6)
        print("cleaned up", flush=True)
"""
    code, output, lines = ends(work)
    assert (code, output) == (143, "cleaned up\n")
    assert lines == ["bert-jax: interrupted; give the same command again to do it from its beginning"]


IN_PYTHON = "time.sleep(60)"
IN_C = "[__import__('ctypes').CDLL(None).pause() for _ in range(9)]"  # each signal ends one pause


@pytest.mark.parametrize("first, held_up", [("SIGTERM", IN_C), ("SIGINT", IN_PYTHON)])
def test_a_second_ctrl_c_ends_a_command_at_once_whatever_it_waits_for(first, held_up):
    work = f"""
def work(_):
    import threading
    threading.Timer(0.5, send, ("{first}", "SIGINT")).start()
    try:
        time.sleep(60)
    finally:
        {held_up}
"""
    began = time.monotonic()
    code, _, lines = ends(work)
    # Before it the first may have been told, where what holds the command up let it go.
    assert (code, lines[-1]) == (
        130,
        "bert-jax: ended at once by a second Ctrl-C; give the same command again to go on",
    )
    assert time.monotonic() - began < 20


def test_two_signals_that_come_together_are_one():
    """As `timeout` and launchers send them."""
    work = """
def work(_):
    os.kill(os.getpid(), signal.SIGINT), os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
"""
    assert ends(work)[0] == 143


def test_what_holds_up_the_end_of_a_process_is_left_behind():
    work = """
import threading
from bert_jax.system import interruption

interruption._LONGEST_EXIT_S = 0.5

def work(_):
    threading.Thread(target=time.sleep, args=(60,)).start()
    send("SIGTERM")
"""
    assert ends(work)[0] == 143


@pytest.fixture
def default_handler():
    """Python's own handler of SIGINT: a job in the background of a shell begins without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_a_signal_during_imports_raises_after_them(default_handler):
    before = default_handler
    done = []
    with pytest.raises(KeyboardInterrupt), interruption.after_block():
        signal.raise_signal(signal.SIGINT)
        done.append("imported")
    assert done == ["imported"] and signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ValueError, match="its own"), interruption.after_block():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("its own")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("name", ["load", "configs.demo"])
@pytest.mark.long(first=1)
def test_a_first_call_that_was_interrupted_can_be_repeated(name):
    code = (
        "import os, signal, sys, threading, bert_jax\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins without\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('bert_jax.config.'):\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        f"try:\n    bert_jax.{name}\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
        "sys.meta_path.pop(0)\n"
        f"bert_jax.{name}, bert_jax.load\nprint('repeated')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["interrupted", "repeated"] and not done.stderr
