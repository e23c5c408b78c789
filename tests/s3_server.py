"""A stand-in for S3 on this machine: the part of its API that s3fs uses for objects of one part, in memory."""

import hashlib
import re
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape, unescape

from object_server import ObjectHandler, ObjectServer

_DATE = "2026-01-01T00:00:00.000Z"


class S3Server(ObjectServer):
    """Holds objects as bytes."""

    scheme = "s3"

    def __init__(self):
        super().__init__(_Handler)
        self.short: list[str] = []
        """Patterns of requests of which the next one to match gets half of the data."""


class _Handler(ObjectHandler):
    server: S3Server

    def _serve(self) -> None:
        path, query, body = self.noted()
        name = unquote(path).strip("/")
        if self.command == "PUT":
            self.server.objects[name] = body
            self._send(200, b"", {"ETag": _etag(body)})
        elif self.command == "GET" and "/" not in name:
            self._send(200, self._listed(name, query), {})
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
        self._send(*self.ranged(data, {"ETag": _etag(data), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}))

    def _listed(self, bucket: str, query: dict[str, str]) -> bytes:
        names, folders = self.server.listed(bucket, query)
        first, most = int(query.get("continuation-token", 0)), int(query.get("max-keys", 1000))
        more = first + most < len(names)
        listed = [
            f"<Contents><Key>{quote(name)}</Key><LastModified>{_DATE}</LastModified>"
            f"<ETag>{escape(_etag(self.server.objects[f'{bucket}/{name}']))}</ETag>"
            f"<Size>{len(self.server.objects[f'{bucket}/{name}'])}</Size></Contents>"
            for name in names[first : first + most]
        ]
        listed += [f"<CommonPrefixes><Prefix>{quote(folder)}</Prefix></CommonPrefixes>" for folder in folders]
        token = f"<NextContinuationToken>{first + most}</NextContinuationToken>" if more else ""
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}"
        described = f"<Name>{bucket}</Name><EncodingType>url</EncodingType>{truncated}"
        return f"<ListBucketResult>{described}{''.join(listed)}</ListBucketResult>".encode()

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        request = f"{self.command} {self.path}"
        short = next((pattern for pattern in self.server.short if re.search(pattern, request)), None)
        if short:
            self.server.short.remove(short)
        self.answer(status, data[: len(data) // 2] if short else data, headers)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'
