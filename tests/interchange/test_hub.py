"""Models named as in the Hugging Face hub, fetched from a server on this machine that answers as the hub does."""

import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

import bert_jax
from bert_jax.cli.main import run
from bert_jax.interchange import hub
from bert_jax.interchange.hub import model_place
from bert_jax.system.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "golden" / "gelu_erf"
REVISION = "0123456789abcdef0123456789abcdef01234567"
NAME = "lab/tiny-bert"


class Server:
    """The hub, with one model: the files of a folder."""

    def __init__(self, folder: Path):
        self.requests = requests = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                requests.append(self.path)
                path, _, _ = self.path.partition("?")
                files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
                _, _, revised = path.partition("/resolve/")
                name = unquote(revised.partition("/")[2])
                if path.startswith(f"/api/models/{NAME}/tree/"):
                    entries = [
                        {"type": "file", "path": name, "size": (folder / name).stat().st_size, "oid": "0" * 40}
                        for name in files
                    ]
                    self.answer(json.dumps(entries).encode())
                elif path.startswith(f"/api/models/{NAME}"):
                    siblings = [{"rfilename": name} for name in files]
                    self.answer(json.dumps({"id": NAME, "sha": REVISION, "siblings": siblings}).encode())
                elif path.startswith(f"/{NAME}/resolve/") and name in files:
                    self.answer((folder / name).read_bytes())
                else:
                    self.answer(b"{}", status=404, code="RepoNotFound")

            do_HEAD = do_GET

            def answer(self, body: bytes, status: int = 200, code: str = ""):
                self.send_response(status)
                headers = {"Content-Length": len(body), "ETag": f'"{len(body)}"', "X-Repo-Commit": REVISION}
                for name, value in (headers | ({"X-Error-Code": code} if code else {})).items():
                    self.send_header(name, str(value))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def published(tmp_path, monkeypatch):
    """The stand-in for the hub, and an empty cache and working directory; the library tries again without a pause."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    folder = tmp_path / "published"
    shutil.copytree(GOLDEN, folder)
    (folder / "expected.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    server = Server(folder)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # as an earlier test may have left it
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield server
    server.close()


def test_a_model_is_fetched_by_its_name_without_its_pickles_and_found_again_offline(published, tmp_path, capsys):
    assert run(["import", NAME, "run"]) == 0
    assert f"{NAME} is taken from the Hugging Face hub, revision {REVISION}" in capsys.readouterr().err
    assert json.loads(Path("run/config.json").read_text())["imported_from"] == NAME
    text = "piece1 [MASK] piece2"
    assert bert_jax.load("run").fill_mask(text) == bert_jax.load(GOLDEN).fill_mask(text)
    fetched = {path.rpartition("/")[2] for path in published.requests if "/resolve/" in path}
    assert fetched == {"config.json", "model.safetensors", "vocab.txt"}
    published.close()
    assert bert_jax.load(NAME).fill_mask(text) == bert_jax.load(GOLDEN).fill_mask(text)


def test_the_pooling_of_sentence_transformers_is_fetched_too(published, tmp_path):
    shutil.rmtree(tmp_path / "published")
    shutil.copytree(GOLDEN.parent / "vectors" / "bert", tmp_path / "published")
    (tmp_path / "published" / "onnx").mkdir()
    (tmp_path / "published" / "onnx" / "config.json").write_text("{}")
    assert bert_jax.load(NAME).task.pool == "cls"
    fetched = {path.partition("/resolve/")[2].partition("/")[2] for path in published.requests}
    assert {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json"} < fetched
    assert "onnx/config.json" not in fetched


def test_a_folder_of_that_name_wins_and_one_line_reports_it(published, capsys):
    shutil.copytree(GOLDEN, NAME)
    folder = Path.cwd() / NAME
    assert model_place(NAME) == folder
    assert f"{NAME} is the folder of this name" in capsys.readouterr().err
    assert model_place(f"./{NAME}") == folder and model_place(Path(NAME)) == folder
    assert not capsys.readouterr().err and not published.requests


def test_a_path_that_is_not_there_is_no_question_to_the_hub(published):
    Path("runs").mkdir()
    for source in ("runs/dmeo", "./lab/other", "/lab/other", "../other", Path(NAME), "a/b/c", "a b"):
        with pytest.raises(UsageError, match="there is nothing at"):
            bert_jax.load(source)
    assert not published.requests


def test_what_the_hub_lacks_is_one_line(published, tmp_path, capsys):
    assert run(["import", "lab/other", "run"]) == 2
    assert "no model of this name in the Hugging Face hub" in capsys.readouterr().err
    (tmp_path / "published" / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="has no safetensors files, and pickles are never read"):
        model_place(NAME)
    (tmp_path / "published" / "adapter_config.json").write_text("{}")
    with pytest.raises(UsageError, match="is an adapter; merge it into its model"):
        model_place(NAME)
    published.close()
    with pytest.raises(UsageError, match="without its weights, and the hub can't be reached; .*hf download"):
        model_place(NAME)
    with pytest.raises(UsageError, match="hub can't be reached, and its cache lacks the model"):
        model_place("lab/another")


def test_without_the_library_the_extra_is_named(published, monkeypatch):
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install .*\[hub\]."):
        model_place(NAME)
