"""A stand-in for Azure Blob Storage on this machine: the part of its API that adlfs uses, in memory."""

import base64
import hashlib
import re
from email.utils import formatdate
from urllib.parse import unquote
from xml.sax.saxutils import escape

from object_server import ObjectHandler, ObjectServer

_DATE = formatdate(0, usegmt=True)


class AzureServer(ObjectServer):
    """Holds objects as bytes."""

    scheme = "az"

    def __init__(self):
        super().__init__(_Handler)
        self.blocks: dict[str, bytes] = {}
        """Blocks of blobs that are being written, by their ids."""
        key, account = base64.b64encode(b"none").decode(), f"{self.url}/account"
        self.connection = f"DefaultEndpointsProtocol=http;AccountName=account;AccountKey={key};BlobEndpoint={account};"


class _Handler(ObjectHandler):
    server: AzureServer

    def _serve(self) -> None:
        path, query, body = self.noted()
        name = unquote(path).removeprefix("/account/")
        if query.get("comp") == "list":
            self.answer(200, self._listed(name, query), {"Content-Type": "application/xml"})
        elif query.get("restype") == "container":
            self.answer(200, b"", _described(b""))
        elif self.command == "PUT":
            self.answer(201, b"", self._put(name, query, body))
        elif name not in self.server.objects:
            self.answer(404, b"", {"x-ms-error-code": "BlobNotFound"})
        elif self.command == "DELETE":
            self.answer(202, b"", _described(self.server.objects.pop(name)))
        else:
            data = self.server.objects[name]
            self.answer(*self.ranged(data, _described(data)))

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

    def _listed(self, container: str, query: dict[str, str]) -> bytes:
        names, folders = self.server.listed(container, query)
        blobs = []
        for name in names:
            data = self.server.objects[f"{container}/{name}"]
            facts = _described(data) | {"Content-Length": str(len(data)), "BlobType": "BlockBlob"}
            listed = "".join(f"<{key}>{escape(fact)}</{key}>" for key, fact in facts.items() if "x-ms" not in key)
            blobs.append(f"<Blob><Name>{escape(name)}</Name><Properties>{listed}</Properties></Blob>")
        blobs += [f"<BlobPrefix><Name>{escape(folder)}</Name></BlobPrefix>" for folder in folders]
        inner = f"<Blobs>{''.join(blobs)}</Blobs><NextMarker/>"
        return f'<EnumerationResults ContainerName="{container}">{inner}</EnumerationResults>'.encode()


def _described(data: bytes) -> dict[str, str]:
    etag = f'"{hashlib.md5(data).hexdigest()}"'
    return {"Etag": etag, "Last-Modified": _DATE, "Creation-Time": _DATE, "x-ms-blob-type": "BlockBlob"}
