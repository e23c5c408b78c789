"""The common part of the stand-ins for object stores: HTTP servers on this machine with their objects in memory."""

import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class ObjectServer(ThreadingHTTPServer):
    """`objects` by bucket/name, `requests` as "METHOD path?query". Every bucket is there already."""

    daemon_threads = True

    def __init__(self, handler: type["ObjectHandler"]):
        super().__init__(("127.0.0.1", 0), handler)
        self.objects: dict[str, Any] = {}
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def put(self, name: str, data: bytes) -> None:
        """Stores an object as bucket/name."""
        self.objects[name] = data

    def handle_error(self, request, client_address) -> None:
        """Clients that close a connection are no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def listed(self, bucket: str, query: dict[str, str]) -> tuple[list[str], list[str]]:
        """The names of a bucket that begin with the query's prefix: objects, and folders up to its delimiter."""
        start, delimiter = query.get("prefix", ""), query.get("delimiter")
        names, folders = [], set()
        for full_name in sorted(self.objects):
            name = full_name.removeprefix(f"{bucket}/")
            if full_name.startswith(f"{bucket}/{start}"):
                head, found, _ = name.removeprefix(start).partition(delimiter) if delimiter else ("", "", "")
                if found:
                    folders.add(f"{start}{head}{delimiter}")
                else:
                    names.append(name)
        return names, sorted(folders)


class ObjectHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_) -> None:
        """Prints nothing."""

    def noted(self) -> tuple[str, dict[str, str], bytes]:
        """Notes the request; returns its path, query and body."""
        self.server.requests.append(f"{self.command} {self.path}")
        url = urlsplit(self.path)
        return url.path, {name: values[-1] for name, values in parse_qs(url.query).items()}, self._body()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def ranged(self, data: bytes, described: dict) -> tuple[int, bytes, dict]:
        """Status, data and headers of an answer with the range of `data` that the request wants."""
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("x-ms-range", self.headers.get("Range", "")))
        if not wanted:
            return 200, data, described
        first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        if first >= len(data):
            return 416, b"", {"x-ms-error-code": "InvalidRange"}
        return 206, data[first : last + 1], described | {"Content-Range": f"bytes {first}-{last}/{len(data)}"}

    def answer(self, status: int, data: bytes, headers: dict) -> None:
        """Sends an answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
