"""An HTTP server on this machine that answers as a test has scripted it, and remembers what it was asked."""

from __future__ import annotations

import json
import socket
import struct
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

Answering = Callable[["Request"], bytes | None]


@dataclass(frozen=True)
class Request:
    """One request as it arrived, header names in lower case. `connection` counts from 1."""

    connection: int
    line: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def answer(status: int = 200, body: Any = None, **headers: str) -> bytes:
    """A whole answer as DynamoDB gives it, checksum included; a header's `_` stands for `-`."""
    content = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
    named = {"x-amz-crc32": str(zlib.crc32(content)), **{name.replace("_", "-"): v for name, v in headers.items()}}
    lines = [f"HTTP/1.1 {status} Anything", *[f"{name}: {value}" for name, value in named.items()]]
    return "\r\n".join([*lines, f"content-length: {len(content)}", "", ""]).encode("latin-1") + content


def error(code: str, *, status: int = 400, message: str = "", **fields: Any) -> bytes:
    """A refusal in DynamoDB's form."""
    return answer(status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message, **fields})


@dataclass
class ScriptedServer:
    """Answers requests in the script's order, with `{}` when that is used up. An entry is the bytes of an answer, a
    function that makes them, or None: the connection is reset without one. Bytes that end in `CLOSE` end it after."""

    port: int = 0
    script: deque[bytes | Answering | None] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)
    open_connections: list[socket.socket] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close_all(self) -> None:
        """End every connection from this side, in the orderly way."""
        for connection in self.open_connections:
            connection.shutdown(socket.SHUT_WR)

    def serve(self, connection: socket.socket, number: int) -> None:
        # A client that gives up, or a test that ends, is no failure of the server's.
        with suppress(OSError, ValueError), connection, connection.makefile("rb") as stream:
            while request := _request(stream, number):
                self.requests.append(request)
                entry = self.script.popleft() if self.script else answer()
                said = entry(request) if callable(entry) else entry
                if said is None:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                connection.sendall(said.removesuffix(CLOSE))
                if said.endswith(CLOSE):
                    return


CLOSE = b"\0close"


def _request(stream: Any, number: int) -> Request | None:
    try:
        line = stream.readline().decode("latin-1").strip()
        headers: dict[str, str] = {}
        while entry := stream.readline().decode("latin-1").strip():
            name, _, value = entry.partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", 0)))
    except OSError:
        return None
    return Request(number, line, headers, body) if line else None


@contextmanager
def scripted_server(*script: bytes | Answering | None) -> Iterator[ScriptedServer]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = ScriptedServer(listening.getsockname()[1], deque(script))

    def accept() -> None:
        number = 0
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            number += 1
            server.open_connections.append(connection)
            threading.Thread(target=server.serve, args=(connection, number), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield server
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for connection in server.open_connections:
            connection.close()
        accepting.join(10)
