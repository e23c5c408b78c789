"""A stand-in for S3 on this machine: the part of its API that s3fs uses for objects of one part, in memory."""

import hashlib
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

_DATE = "2026-01-01T00:00:00.000Z"


class S3Server(ThreadingHTTPServer):
    """`objects` by bucket/name, `requests` as "METHOD path?query". Every bucket is there already."""

    daemon_threads = True
    scheme = "s3"

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.short: list[str] = []
        """Patterns of requests of which the next one to match gets half of the data."""
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request, client_address) -> None:
        """Clients that close a connection are no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: S3Server

    def log_message(self, *_) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(f"{self.command} {self.path}")
        url = urlsplit(self.path)
        name = unquote(url.path).strip("/")
        if self.command == "PUT":
            self.server.objects[name] = body
            self._send(200, b"", {"ETag": _etag(body)})
        elif self.command == "GET" and "/" not in name:
            self._send(200, self._listed(name, {key: each[-1] for key, each in parse_qs(url.query).items()}), {})
        elif self.command == "POST":  # to delete objects
            for key in re.findall(r"<Key>(.*?)</Key>", body.decode()):
                self.server.objects.pop(f"{name}/{unescape(key)}", None)
            self._send(200, b"<DeleteResult/>", {})
        elif "/" not in name:
            self._send(200, b"", {})
        elif name not in self.server.objects:
            self._send(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>", {})
        else:
            self._object(self.server.objects[name])

    do_GET = do_PUT = do_HEAD = do_POST = _serve

    def _object(self, data: bytes) -> None:
        described, status = {"ETag": _etag(data), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}, 200
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
            described["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            data, status = data[first : last + 1], 206
        self._send(status, data, described)

    def _listed(self, bucket: str, query: dict[str, str]) -> bytes:
        start, delimiter = query.get("prefix", ""), query.get("delimiter")
        names, folders = [], set()
        for name in sorted(name.removeprefix(f"{bucket}/") for name in self.server.objects):
            if not name.startswith(start):
                continue
            head, found, _ = name.removeprefix(start).partition(delimiter) if delimiter else ("", "", "")
            if found:
                folders.add(f"{start}{head}{delimiter}")
            else:
                names.append(name)
        first, most = int(query.get("continuation-token", 0)), int(query.get("max-keys", 1000))
        more = first + most < len(names)
        listed = [
            f"<Contents><Key>{quote(name)}</Key><LastModified>{_DATE}</LastModified>"
            f"<ETag>{escape(_etag(self.server.objects[f'{bucket}/{name}']))}</ETag>"
            f"<Size>{len(self.server.objects[f'{bucket}/{name}'])}</Size></Contents>"
            for name in names[first : first + most]
        ]
        listed += [f"<CommonPrefixes><Prefix>{quote(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders)]
        token = f"<NextContinuationToken>{first + most}</NextContinuationToken>" if more else ""
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}"
        described = f"<Name>{bucket}</Name><EncodingType>url</EncodingType>{truncated}"
        return f"<ListBucketResult>{described}{''.join(listed)}</ListBucketResult>".encode()

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        request = f"{self.command} {self.path}"
        short = next((pattern for pattern in self.server.short if re.search(pattern, request)), None)
        if short:
            self.server.short.remove(short)
            data = data[: len(data) // 2]
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'
