import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.system import copies
from bert_jax.training.compiled_programs import CheckedPrograms, _opened

VALUE = bytes(range(256)) * 4
DAMAGES = {
    "a flipped bit": lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
    "cut": lambda content: content[:-40],
    "longer": lambda content: content + b"\0",
    "empty": lambda content: b"",
    "another content": lambda content: b"hello" * 100,
    "its checksum alone": lambda content: content[-16:],
}


def entry(cache):
    [path] = Path(str(cache.path)).glob("*-cache")
    return path


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("most", [-1, 1 << 20])
def test_a_damaged_entry_is_deleted_with_one_line_and_written_again(tmp_path, damage, most, capsys):
    cache = CheckedPrograms(str(tmp_path), max_size=most)
    assert cache.get("jit_step-1") is None
    cache.put("jit_step-1", VALUE)
    assert cache.get("jit_step-1") == VALUE and capsys.readouterr().err == ""
    path = entry(cache)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get("jit_step-1") is None
    [line] = capsys.readouterr().err.splitlines()
    assert str(path) in line and "was deleted" in line
    cache.put("jit_step-1", VALUE)
    assert cache.get("jit_step-1") == VALUE and capsys.readouterr().err == ""


def test_only_plain_files_are_read(tmp_path, capsys):
    cache = CheckedPrograms(str(tmp_path), max_size=-1)
    cache.put("jit_step-1", VALUE)
    path = entry(cache)
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to("nowhere")):
        path.unlink()
        make(path)
        assert cache.get("jit_step-1") is None and "was deleted" in capsys.readouterr().err
        cache.put("jit_step-1", VALUE)
        assert stat.S_ISREG(path.lstat().st_mode) and cache.get("jit_step-1") == VALUE
    path.unlink()
    path.mkdir()
    assert cache.get("jit_step-1") is None and "can't be deleted" in capsys.readouterr().err
    cache.put("jit_step-1", VALUE)


def test_a_directory_that_cant_be_used_costs_a_line_and_no_error(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert _opened(str(tmp_path / "file")) is None
    assert capsys.readouterr().err.startswith(f"compiled programs aren't kept in {tmp_path / 'file'}: ")


PROGRAM = """
import bert_jax
from bert_jax.training.compiled_programs import keep_compiled_programs
import jax, jax.numpy as jnp

keep_compiled_programs()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(jax.jit(lambda x: jnp.sin(x) @ x.T)(jnp.ones((8, 8))).sum())
"""


def ran(code=PROGRAM, **environment):
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment = own | {"JAX_PLATFORMS": "cpu"} | environment
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    return done.stdout, done.stderr


@pytest.mark.long
def test_jax_reads_and_writes_checked_entries(tmp_path):
    out, err = ran(XDG_CACHE_HOME=str(tmp_path))
    paths = sorted((tmp_path / "bert_jax/compiled").glob("*-checked-cache"))
    assert paths and not err
    times = [path.stat().st_mtime_ns for path in paths]
    assert ran(XDG_CACHE_HOME=str(tmp_path)) == (out, "")
    assert [path.stat().st_mtime_ns for path in paths] == times
    for path in paths:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    again, err = ran(XDG_CACHE_HOME=str(tmp_path))
    assert again == out and len(err.splitlines()) == len(paths) and err.count("was deleted") == len(paths)
    assert ran(XDG_CACHE_HOME=str(tmp_path)) == (out, "")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("JAX_COMPILATION_CACHE_MAX_SIZE", "abc"), ("JAX_ENABLE_X64", "maybe"), ("JAX_PLATFORMS", "nonsense")],
)
@pytest.mark.long(first=1)
def test_a_variable_that_jax_cant_use_is_named(tiny_run, variable, value):
    load = f"bert_jax.load({str(tiny_run.path)!r})"
    code = f"import bert_jax\ntry:\n    {load}\nexcept bert_jax.UsageError as error:\n    print(error)"
    out, err = ran(code, **{variable: value})
    assert out.startswith(f"{variable}={value} can't be used here (") and len(out.splitlines()) == 1 and not err


def test_without_a_home_directory_programs_are_kept_for_the_process(monkeypatch, capsys):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(copies.Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    folder = copies.cache_directory()
    assert folder.is_dir() and copies.cache_directory() == folder
    assert len(capsys.readouterr().err.splitlines()) == 1
