"""Serves the report of a run to this machine's browser, rebuilt while the run goes on."""

import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bert_jax.report.report import comparison_page, run_page
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system import interruption
from bert_jax.system.bucket import Place
from bert_jax.system.errors import BertJaxError, UsageError
from bert_jax.system.journal import FILE_NAME

_LEAST_S = 3.0
"""Least seconds between two builds of the page."""
_REST = 2.0
"""After a build of T seconds the next waits this many times T, so that the training keeps most of the time."""
_REFRESH_S = 10
"""Seconds after which the browser asks again."""
_NAMES = "127.0.0.1", "localhost"
"""Hosts that a request may be for; another name could be a web page's that leads to this machine."""


class Followed:
    """The page of `runs`, built again where their files have changed. The models are not opened: the memory and the
    time belong to the training."""

    def __init__(self, runs: Sequence[Place], clock: Callable[[], float] = time.monotonic):
        self._runs, self._clock, self._lock = [RunDirectory(run) for run in runs], clock, threading.Lock()
        self._page, self._state, self._next = "", "", 0.0

    def page(self) -> str:
        """The newest page. Raises what `write_report` does if there is none yet."""
        with self._lock:
            state = self._files_state()
            began = self._clock()
            if not self._page or state != self._state and began >= self._next:
                self._page, self._state = self._built(), state
                self._next = self._clock() + max(_LEAST_S, _REST * (self._clock() - began))
            return self._page

    def _built(self) -> str:
        paths = [run.path for run in self._runs]
        try:
            if len(paths) == 1:
                return run_page(paths[0], with_model=False, refresh_s=_REFRESH_S)
            return comparison_page(paths, refresh_s=_REFRESH_S)
        except BertJaxError:  # a file is just being replaced
            if not self._page:
                raise
            return self._page

    def _files_state(self) -> str:
        """Sizes and times of the files that the page is made of."""
        states: list[object] = []
        for run in self._runs:
            for file in (run.config_file, run.metrics_file, run.results_file, run.path / FILE_NAME):
                try:
                    found = file.stat()
                    states.append((found.st_size, found.st_mtime_ns) if hasattr(found, "st_size") else str(found))
                except OSError:
                    states.append(None)
        return repr(states)


def serve(runs: Sequence[Place], port: int, announce: Callable[[str], None]) -> None:
    """Serves the page at http://127.0.0.1:PORT/ until an interruption, and nothing else. `port`: 0 for a free one.

    `announce` is called with the address once it can be opened. Raises UsageError if the port is taken, and what
    `write_report` does.
    """
    followed = Followed(runs)
    followed.page()  # so that an error is raised here
    try:
        server = ThreadingHTTPServer((_NAMES[0], port), _handler(followed))
    except (OSError, OverflowError) as error:
        raise UsageError(f"--port {port} can't be listened on ({error}); give another, or leave it out") from None
    with server:
        announce(f"http://{_NAMES[0]}:{server.server_address[1]}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:  # Ctrl-C is how it ends
            interruption.stop_raising()


def _handler(followed: Followed) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET and HEAD of / with the page."""

        server_version, sys_version = "bert-jax", ""

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def log_message(self, *_: object) -> None:
            """Prints no line for a request."""

        def _answer(self, with_body: bool) -> None:
            if self.headers.get("Host", "").partition(":")[0] not in _NAMES:
                self.send_error(HTTPStatus.FORBIDDEN)
            elif self.path != "/":
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                body = followed.page().encode(errors="replace")
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

    return Handler
