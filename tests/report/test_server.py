import shutil
import threading
import urllib.error
import urllib.request

import pytest

from bert_jax.report import server as server_module
from bert_jax.report.server import Followed, serve
from bert_jax.system.errors import UsageError


@pytest.fixture
def address(tiny_copy, monkeypatch):
    """Where the report of a run is served meanwhile."""
    made, announced, ready = [], [], threading.Event()
    real = server_module.ThreadingHTTPServer
    monkeypatch.setattr(server_module, "ThreadingHTTPServer", lambda *given: made.append(real(*given)) or made[0])
    announce = lambda where: announced.append(where) or ready.set()
    thread = threading.Thread(target=serve, args=([tiny_copy.path], 0, announce), daemon=True)
    thread.start()
    assert ready.wait(60)
    yield announced[0]
    made[0].shutdown()
    thread.join(10)


def answer(url: str, **headers: str) -> int | str:
    """The text at `url`, or the code of the error."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as found:
            return found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code


def test_the_page_alone_is_served_and_to_this_machine_alone(address):
    text = answer(address)
    assert 'id="follow" value="10"' in text and "Verdict" in text
    for path in ("config.json", "report.html", "..%2fconfig.json", "?a", "checkpoints/"):
        assert answer(address + path) == 404
    assert answer(address, Host="attacker.example:80") == 403
    assert address.startswith("http://127.0.0.1:")


def test_it_is_built_again_when_the_run_has_gone_on_and_not_at_once(tiny_copy):
    now = [0.0]
    followed = Followed([tiny_copy.path], clock=lambda: now[0])
    first = followed.page()
    with open(tiny_copy.metrics_file, "a") as file:
        file.write('{"step": 99, "split": "train", "loss": 1.0}\n')
    assert followed.page() == first  # too soon
    now[0] = 60.0
    assert "99<small>of 12" in followed.page()


def test_a_run_that_is_gone_for_a_moment_leaves_the_last_page(tiny_copy, tmp_path):
    now = [0.0]
    followed = Followed([tiny_copy.path], clock=lambda: now[0])
    first = followed.page()
    shutil.move(tiny_copy.config_file, tmp_path / "away")
    now[0] = 60.0
    assert followed.page() == first


def test_a_port_that_is_taken_is_a_line(address, tiny_copy, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(UsageError, match="--port .* can't be listened on"):
        serve([tiny_copy.path], int(address.rstrip("/").rpartition(":")[2]), lambda where: None)


def test_ctrl_c_is_the_end_of_serving(tiny_copy, monkeypatch):
    def interrupted(server):
        raise KeyboardInterrupt

    settled = []
    monkeypatch.setattr(server_module.ThreadingHTTPServer, "serve_forever", interrupted)
    monkeypatch.setattr(server_module.interruption, "stop_raising", lambda: settled.append(True))
    serve([tiny_copy.path], 0, lambda where: None)
    assert settled
