"""A stand-in for Cloud Storage on this machine: the part of its JSON API that gcsfs and tensorstore use, in memory."""

import base64
import hashlib
import itertools
import json
import re
import threading
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c
from object_server import ObjectHandler, ObjectServer

_OBJECT = re.compile(r"(?:/download|/upload)?/storage/v1/b/([^/]+)(?:/o(?:/(.+))?)?")
_MISSING = 404, {"error": {"code": 404, "message": "No such object"}}, {}


class Stored(NamedTuple):
    """An object."""

    data: bytes
    generation: int


class BucketServer(ObjectServer):
    """Holds each object as Stored."""

    scheme = "gs"

    def __init__(self):
        super().__init__(_Handler)
        self.uploads: dict[str, tuple[str, dict, bytes]] = {}
        """Resumable ones under way: name, conditions, what has come so far."""
        self.generations, self.lock = itertools.count(1), threading.Lock()
        self.faults: list[tuple[str, str]] = []

    def fail(self, pattern: str, how: str, times: int = 1) -> None:
        """Lets the next `times` requests that match `pattern` fail: by a status like "503", or with data that is
        "cut" off, "short" or "wrong"."""
        self.faults += [(pattern, how)] * times

    def fault(self, request: str) -> str | None:
        """What is to befall `request`."""
        found = next((fault for fault in self.faults if re.search(fault[0], request)), None)
        if found:
            self.faults.remove(found)
        return found and found[1]

    def names(self, prefix: str) -> list[str]:
        """Of the objects whose bucket/name begins with `prefix`, what comes after it."""
        return sorted(name.removeprefix(prefix) for name in self.objects if name.startswith(prefix))

    def put(self, name: str, data: bytes) -> None:
        """Stores an object as bucket/name."""
        self.objects[name] = Stored(data, next(self.generations))


class _Handler(ObjectHandler):
    server: BucketServer

    def _serve(self) -> None:
        _, _, body = self.noted()
        self.how = self.server.fault(f"{self.command} {self.path}")
        if self.how and self.how.isdigit():
            self._json({"error": {"code": int(self.how), "message": "as asked for"}}, int(self.how))
            return
        with self.server.lock:
            status, value, headers = self._answer(self.command, self.path, body, self.headers)
        if isinstance(value, bytes):
            self._send(status, value, headers)
        else:
            self._json(value, status, headers)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def _answer(self, command: str, target: str, body: bytes, headers) -> tuple[int, bytes | dict | None, dict]:
        url = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if url.path == "/batch/storage/v1":
            return self._batch(body, headers)
        if moved := re.fullmatch(r"/storage/v1/b/([^/]+)/o/(.+)/moveTo/o/(.+)", url.path):
            found = self.server.objects.pop(f"{moved[1]}/{unquote(moved[2])}", None)
            return self._write(f"{moved[1]}/{unquote(moved[3])}", found.data, query) if found else _MISSING
        bucket, name = _OBJECT.fullmatch(url.path).groups()
        if url.path.startswith("/upload"):
            return self._upload(command, bucket, query, body, headers)
        if name is None:
            return (200, self._listed(bucket, query), {}) if "/o" in url.path else (200, {"name": bucket}, {})
        return self._object(command, f"{bucket}/{unquote(name)}", query)

    def _object(self, command: str, name: str, query: dict) -> tuple[int, bytes | dict | None, dict]:
        found = self.server.objects.get(name)
        if found is None:
            return _MISSING
        if not _holds(query, found):
            return (304 if "ifGenerationNotMatch" in query else 412), {"error": {"code": 412}}, {}
        if command == "DELETE":
            del self.server.objects[name]
            return 204, b"", {}
        if query.get("alt") != "media":
            return 200, _described(name, found), {}
        described = {"x-goog-generation": found.generation, "x-goog-hash": f"crc32c={_crc32c(found.data)}"}
        return self.ranged(found.data, described)

    def _listed(self, bucket: str, query: dict) -> dict:
        names, folders = self.server.listed(bucket, query)
        begin, end = query.get("startOffset", ""), query.get("endOffset")
        names = [name for name in names if begin <= name and (end is None or name < end)]
        items = [_described(f"{bucket}/{name}", self.server.objects[f"{bucket}/{name}"]) for name in names]
        first, size = int(query.get("pageToken", 0)), int(query.get("maxResults", 1000))
        more = {"nextPageToken": str(first + size)} if first + size < len(items) else {}
        return {"items": items[first : first + size], "prefixes": folders} | more

    def _upload(self, command: str, bucket: str, query: dict, body: bytes, headers) -> tuple[int, dict | None, dict]:
        if query["uploadType"] == "media":
            return self._write(f"{bucket}/{query['name']}", body, query)
        if query["uploadType"] == "multipart":
            boundary = re.search("boundary=['\"]?([^'\";]+)", headers["Content-Type"])[1].encode()
            _, described, content, _ = body.split(b"--" + boundary)
            name = json.loads(described.partition(b"\n\n")[2] or described.partition(b"\r\n\r\n")[2])["name"]
            return self._write(f"{bucket}/{name}", re.split(rb"\r?\n\r?\n", content, maxsplit=1)[1][:-1], query)
        if "upload_id" not in query:
            number = str(next(self.server.generations))
            name = query.get("name") or json.loads(body)["name"]
            self.server.uploads[number] = (f"{bucket}/{name}", query, b"")
            place = f"{self.server.url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={number}"
            return 200, {}, {"Location": place}
        name, conditions, before = self.server.uploads[query["upload_id"]]
        data = before + body
        self.server.uploads[query["upload_id"]] = (name, conditions, data)
        if headers.get("Content-Range", "").endswith("/*"):
            return 308, {}, {"Range": f"bytes=0-{len(data) - 1}"}
        return self._write(name, data, conditions)

    def _write(self, name: str, data: bytes, conditions: dict) -> tuple[int, dict, dict]:
        if not _holds(conditions, self.server.objects.get(name)):
            return 412, {"error": {"code": 412, "message": "conditionNotMet"}}, {}
        self.server.put(name, data)
        return 200, _described(name, self.server.objects[name]), {}

    def _batch(self, body: bytes, headers) -> tuple[int, bytes, dict]:
        """Requests in one, all of them to delete."""
        answers = []
        for number, target in enumerate(re.findall(rb"DELETE (\S+) HTTP", body), 1):
            status, _, _ = self._answer("DELETE", target.decode(), b"", headers)
            head = f"Content-Type: application/http\r\nContent-ID: <response-{number}>\r\n\r\n"
            answers.append(f"--batch\r\n{head}HTTP/1.1 {status} \r\n\r\n\r\n")
        return 200, "".join([*answers, "--batch--"]).encode(), {"Content-Type": "multipart/mixed; boundary=batch"}

    def _json(self, value: dict | None, status: int, headers: dict | None = None) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"} | (headers or {}))

    def _send(self, status: int, data: bytes, headers: dict) -> None:
        self.send_response(status)
        sent = data[: len(data) // 2] if self.how in ("cut", "short") else data
        if self.how == "wrong":
            sent = sent[:-1] + bytes([sent[-1] ^ 1])
        for name, value in headers.items():
            self.send_header(name, str(value))
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(sent if self.how == "short" else data)))
        self.end_headers()
        if status not in (204, 304):
            self.wfile.write(sent)
        self.close_connection |= self.how == "cut"


def _holds(conditions: dict, found: Stored | None) -> bool:
    """Whether ifGenerationMatch and ifGenerationNotMatch do; no object has generation 0."""
    now = str(found.generation if found else 0)
    unlike = conditions.get("ifGenerationNotMatch")
    return conditions.get("ifGenerationMatch", now) == now and unlike != now


def _described(name: str, found: Stored) -> dict:
    bucket, _, own = name.partition("/")
    return {
        "bucket": bucket,
        "name": own,
        "size": str(len(found.data)),
        "generation": str(found.generation),
        "md5Hash": base64.b64encode(hashlib.md5(found.data).digest()).decode(),
        "crc32c": _crc32c(found.data),
        "timeCreated": "2026-01-01T00:00:00.000Z",
        "updated": "2026-01-01T00:00:00.000Z",
    }


def _crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
