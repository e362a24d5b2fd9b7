"""TLS: only a server whose certificate is trusted and names it is spoken to, and its connection is kept."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.fakes import FakeClock
from tests.support.http_server import ScriptedServer
from thunderagent.connections import Connections, NoAnswer

REQUEST = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"


def certificate(directory: Path, address: str) -> Path:
    """One file with a certificate for this address, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / "certificate.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return path


@pytest.fixture
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    path = certificate(tmp_path, request.param)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    server = ScriptedServer()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                plain, _ = listening.accept()
                server.serve(context.wrap_socket(plain, server_side=True), 1)
            except OSError:
                pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1], path
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def connections(port: int, ca_file: str | None) -> Connections:
    return Connections("127.0.0.1", port, tls=True, clock=FakeClock(), ca_file=ca_file)


@pytest.mark.parametrize("port", ["127.0.0.1"], indirect=True)
def test_a_trusted_server_is_spoken_to_over_one_connection(port: tuple[int, Path]) -> None:
    """It accepts a single one: the second request needs the first one's."""
    number, path = port
    kept = connections(number, str(path))
    assert [kept.exchange(REQUEST).status, kept.exchange(REQUEST).status] == [200, 200]
    kept.close()


@pytest.mark.parametrize("port", ["127.0.0.1"], indirect=True)
def test_a_server_that_is_not_trusted_is_told_nothing(port: tuple[int, Path]) -> None:
    with pytest.raises(NoAnswer, match="CERTIFICATE_VERIFY_FAILED") as caught:
        connections(port[0], None).exchange(REQUEST)
    assert caught.value.sent is False


@pytest.mark.parametrize("port", ["127.0.0.2"], indirect=True)
def test_a_certificate_of_another_name_is_refused(port: tuple[int, Path]) -> None:
    with pytest.raises(NoAnswer, match="CERTIFICATE_VERIFY_FAILED") as caught:
        connections(port[0], str(port[1])).exchange(REQUEST)
    assert caught.value.sent is False
