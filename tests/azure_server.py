"""A stand-in for Azure Blob Storage on this machine: the part of its API that adlfs uses, in memory."""

import base64
import hashlib
import re
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_DATE = formatdate(0, usegmt=True)


class AzureServer(ThreadingHTTPServer):
    """`objects` by container/name, `requests` as "METHOD path?query". Every container is there already."""

    daemon_threads = True
    scheme = "az"

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.blocks: dict[str, bytes] = {}
        """Blocks of blobs that are being written, by their ids."""
        key = base64.b64encode(b"none").decode()
        place = f"http://127.0.0.1:{self.server_port}/account"
        self.connection = f"DefaultEndpointsProtocol=http;AccountName=account;AccountKey={key};BlobEndpoint={place};"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: AzureServer

    def log_message(self, *_) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(f"{self.command} {self.path}")
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        name = unquote(url.path).removeprefix("/account/")
        if query.get("comp") == "list":
            self._send(200, self._listed(name, query), {"Content-Type": "application/xml"})
        elif query.get("restype") == "container":
            self._send(200, b"", _described(b""))
        elif self.command == "PUT":
            self._send(201, b"", self._put(name, query, body))
        elif name not in self.server.objects:
            self._send(404, b"", {"x-ms-error-code": "BlobNotFound"})
        elif self.command == "DELETE":
            self._send(202, b"", _described(self.server.objects.pop(name)))
        else:
            self._object(self.server.objects[name])

    do_GET = do_PUT = do_HEAD = do_DELETE = _serve

    def _put(self, name: str, query: dict[str, str], body: bytes) -> dict[str, str]:
        if query.get("comp") == "block":
            self.server.blocks[query["blockid"]] = body
            return {}
        if query.get("comp") == "blocklist":
            ids = re.findall(r"<(?:Latest|Uncommitted)>(.*?)</", body.decode())
            body = b"".join(self.server.blocks.pop(each) for each in ids)
        self.server.objects[name] = body
        return _described(body)

    def _object(self, data: bytes) -> None:
        described, status = _described(data), 200
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("x-ms-range", self.headers.get("Range", ""))):
            first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
            if first >= len(data):
                self._send(416, b"", {"x-ms-error-code": "InvalidRange"})
                return
            described["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            data, status = data[first : last + 1], 206
        self._send(status, data, described)

    def _listed(self, container: str, query: dict[str, str]) -> bytes:
        start, delimiter = query.get("prefix", ""), query.get("delimiter")
        blobs, folders = [], set()
        for name, data in sorted(self.server.objects.items()):
            name = name.removeprefix(f"{container}/")
            head, found, _ = name.removeprefix(start).partition(delimiter) if delimiter else ("", "", "")
            if not name.startswith(start):
                continue
            if found:
                folders.add(f"{start}{head}{delimiter}")
                continue
            facts = _described(data) | {"Content-Length": str(len(data)), "BlobType": "BlockBlob"}
            listed = "".join(f"<{key}>{escape(fact)}</{key}>" for key, fact in facts.items() if "x-ms" not in key)
            blobs.append(f"<Blob><Name>{escape(name)}</Name><Properties>{listed}</Properties></Blob>")
        blobs += [f"<BlobPrefix><Name>{escape(folder)}</Name></BlobPrefix>" for folder in sorted(folders)]
        inner = f"<Blobs>{''.join(blobs)}</Blobs><NextMarker/>"
        return f'<EnumerationResults ContainerName="{container}">{inner}</EnumerationResults>'.encode()

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _described(data: bytes) -> dict[str, str]:
    etag = f'"{hashlib.md5(data).hexdigest()}"'
    return {"Etag": etag, "Last-Modified": _DATE, "Creation-Time": _DATE, "x-ms-blob-type": "BlockBlob"}
