"""HTTP/1.1 over connections that are kept: one request, one answer. It sends everything exactly once.

`http.client` is not used: with the header parser of `email` it takes 127 µs of CPU for an exchange that takes 36 µs
here, and 18 ms to import (measured). It reads what RFC 9112 lets a server answer to a POST.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thunderagent.clock import Clock

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 8.0  # from the first byte sent to the last one received
IDLE_SECONDS = 30.0  # later it may be dead without a sign: a container was frozen, a NAT forgot
KEPT = 64  # connections at rest; more may be in use
HEAD_BYTES = 65_536
CHUNK_LINE_BYTES = 4_096
_READ_BYTES = 65_536


class NoAnswer(Exception):
    """There was no whole answer. `sent` is False when the request surely did not reach the server."""

    def __init__(self, code: str, message: str, *, sent: bool = True) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.sent = sent


@dataclass(frozen=True)
class Answer:
    """What came back. Header names are in lower case; of a repeated one the last counts."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connections:
    """Kept connections to one origin, for any number of threads: the one used last is used next, so that few are kept
    and those stay warm. (One for each thread would be a new handshake for each task: tasks run in threads of their
    own.)"""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: bool,
        clock: Clock,
        connect_seconds: float = CONNECT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        ca_file: str | None = None,
    ) -> None:
        self._address = (host, port)
        self._tls = tls
        self._clock = clock
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None
        self._connect_seconds = connect_seconds
        self._answer_seconds = answer_seconds
        self._resting: deque[tuple[float, socket.socket]] = deque()

    def exchange(self, request: bytes) -> Answer:
        """Send a whole request, headers and body in one, and return the answer. Raises NoAnswer."""
        connection = self._take() or self._open()
        keep = False
        try:
            deadline = self._clock.monotonic() + self._answer_seconds
            connection.settimeout(self._answer_seconds)
            connection.sendall(request)
            answer, keep = _Reader(connection, self._clock, deadline).answer()
        except TimeoutError as error:
            raise NoAnswer("ReadTimeout", str(error)) from error
        except OSError as error:
            raise NoAnswer("ConnectionClosed", f"{type(error).__name__}: {error}") from error
        finally:
            # Also when a thread is interrupted in between: what is half read must never be kept.
            if keep and len(self._resting) < KEPT:
                self._resting.append((self._clock.monotonic(), connection))
            else:
                connection.close()
        return answer

    def close(self) -> None:
        """Close the connections at rest."""
        while self._resting:
            self._resting.pop()[1].close()

    def __del__(self) -> None:
        self.close()

    def _take(self) -> socket.socket | None:
        """A connection at rest that is still good. One that has something to read has been closed from over there."""
        while True:
            try:
                since, connection = self._resting.pop()
            except IndexError:
                return None
            if self._clock.monotonic() - since < IDLE_SECONDS and not _is_readable(connection):
                return connection
            connection.close()

    def _open(self) -> socket.socket:
        try:
            plain = socket.create_connection(self._address, self._connect_seconds)
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return self._over_tls(plain) if self._tls else plain
            except BaseException:
                plain.close()
                raise
        except OSError as error:  # an ssl.SSLError is one
            raise NoAnswer("ConnectError", f"{type(error).__name__}: {error}", sent=False) from error

    def _over_tls(self, plain: socket.socket) -> ssl.SSLSocket:
        if self._context is None:
            import ssl  # 9 ms, and 22 ms for the authorities: an endpoint on this machine does not need them

            self._context = ssl.create_default_context(cafile=self._ca_file)
        return self._context.wrap_socket(plain, server_hostname=self._address[0])


def _is_readable(connection: socket.socket) -> bool:
    poll = select.poll()  # not select(): it fails for descriptors from 1024 on
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


class _Reader:
    """Reads one answer from a connection. Raises OSError when it ends too early or is no HTTP."""

    def __init__(self, connection: socket.socket, clock: Clock, deadline: float) -> None:
        self._connection = connection
        self._clock = clock
        self._deadline = deadline
        self._read = b""

    def answer(self) -> tuple[Answer, bool]:
        """The answer, and whether the connection may be used again."""
        status, version, headers = self._head()
        while status < 200:  # "100 Continue": not asked for, but allowed
            status, version, headers = self._head()
        asked = headers.get("connection", "").lower()
        keep = "close" not in asked and (version == "HTTP/1.1" or "keep-alive" in asked)
        if status in {204, 304}:
            body = b""
        elif "transfer-encoding" in headers:
            body = self._chunks(headers["transfer-encoding"])
        elif "content-length" in headers:
            body = self._exactly(_length(headers["content-length"]))
        else:
            body, keep = self._to_the_end(), False
        return Answer(status, headers, body), keep and not self._read  # what nobody asked for spoils it

    def _head(self) -> tuple[int, str, dict[str, str]]:
        while (end := self._read.find(b"\r\n\r\n")) < 0:
            if len(self._read) > HEAD_BYTES:
                raise OSError("the headers of the answer do not end")
            self._more()
        lines = self._read[:end].decode("latin-1").split("\r\n")
        self._read = self._read[end + 4 :]
        version, _, rest = lines[0].partition(" ")
        if version not in {"HTTP/1.1", "HTTP/1.0"} or not rest[:3].isdigit():
            raise OSError(f"no HTTP answer: {lines[0][:60]!r}")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return int(rest[:3]), version, headers

    def _chunks(self, coding: str) -> bytes:
        if coding.lower() != "chunked":
            raise OSError(f"the answer is {coding[:60]!r}, which was not asked for")
        parts: list[bytes] = []
        while True:
            line = self._line()
            size = int(line.partition(b";")[0], 16) if _is_hex(line.partition(b";")[0]) else -1
            if size < 0:
                raise OSError(f"no size of a chunk: {line[:60]!r}")
            if size == 0:
                while self._line():  # trailers
                    pass
                return b"".join(parts)
            parts.append(self._exactly(size))
            if self._line():
                raise OSError("a chunk is longer than it said")

    def _line(self) -> bytes:
        while (end := self._read.find(b"\r\n")) < 0:
            if len(self._read) > CHUNK_LINE_BYTES:
                raise OSError("a line of the answer does not end")
            self._more()
        line, self._read = self._read[:end], self._read[end + 2 :]
        return line

    def _exactly(self, length: int) -> bytes:
        parts, missing = [self._read], length - len(self._read)
        while missing > 0:
            parts.append(self._received())
            missing -= len(parts[-1])
        whole = b"".join(parts) if len(parts) > 1 else self._read
        self._read = whole[length:]
        return whole[:length] if self._read else whole

    def _to_the_end(self) -> bytes:
        parts, self._read = [self._read], b""
        while part := self._some():
            parts.append(part)
        return b"".join(parts)

    def _more(self) -> None:
        self._read += self._received()

    def _received(self) -> bytes:
        part = self._some()
        if not part:
            raise OSError("the connection was closed before the end of the answer")
        return part

    def _some(self) -> bytes:
        left = self._deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        self._connection.settimeout(left)
        return self._connection.recv(_READ_BYTES)


def _length(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise OSError(f"no length of an answer: {text[:60]!r}")
    return int(text)


def _is_hex(text: bytes) -> bool:
    return 0 < len(text) <= 15 and all(digit in b"0123456789abcdefABCDEF" for digit in text)
