"""The HTTP layer over TLS: what could differ from plain sockets (test_http_layer.py has the rest).

Suspended connections, clients that leave, refusals in the middle of a body, slow readers, idling:
the same must hold when the bytes pass through the library's TLS.
"""

import asyncio
import json
import socket
import ssl
import subprocess
import time

import aiohttp
import pytest

from layer import HOST, PATIENCE_S, Server, pattern, read_all, read_until


def make_certificate(folder, name="localhost"):
    cert, key = folder / f"{name}.cert.pem", folder / f"{name}.key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", key, "-out", cert, "-days", "30", "-subj", f"/CN={name}",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True)
    return cert, key


class TlsServer(Server):
    def __init__(self, cert, key, **options):
        super().__init__(cert=cert, key=key, **options)
        self.url = f"https://{HOST}:{self.port}"
        self.context = ssl.create_default_context(cafile=cert)

    def dial(self, text=None):
        s = self.context.wrap_socket(
            socket.create_connection((HOST, self.port), timeout=PATIENCE_S), server_hostname=HOST)
        if text is not None:
            s.sendall(text if isinstance(text, bytes) else text.encode())
        return s


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def serve(certificate):
    servers = []

    def start(**options):
        servers.append(TlsServer(*certificate, **options))
        return servers[-1]

    yield start
    for s in servers:
        if s.process.poll() is None:
            s.stop()


def fetch_all(server, paths):
    async def one(session, path):
        async with session.get(server.url + path, ssl=server.context) as r:
            assert r.status == 200
            return await r.text()

    async def main():
        timeout = aiohttp.ClientTimeout(total=600)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            return await asyncio.gather(*(one(session, p) for p in paths))

    return asyncio.run(main())


def test_many_streams_get_every_event(serve):
    server = serve()
    for text in fetch_all(server, ["/stream?n=20&hz=20&size=50&spread=1"] * 100):
        events = [e for e in text.split("\n\n") if e]
        assert events[-1] == "data: [DONE]"
        assert [json.loads(e[6:])["i"] for e in events[:-1]] == list(range(20))
    server.wait_open(0)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions(serve, version):
    server = serve()
    server.context.minimum_version = server.context.maximum_version = version
    with server.dial("GET /late?ms=50 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as s:
        assert s.version() == version.name.replace("v1_", "v1.")
        assert read_all(s).endswith(b"late\n")


@pytest.mark.filterwarnings("ignore:.*TLSVersion.*deprecated")
def test_old_versions_are_refused(serve):
    server = serve()
    server.context.set_ciphers("ALL:@SECLEVEL=0")
    server.context.minimum_version = ssl.TLSVersion.TLSv1
    server.context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError):
        server.dial()


def test_answers_and_bodies_arrive_whole(serve):
    server = serve()
    for n in (0, 1, 65_535, 65_537, 3_000_000):
        with server.dial(f"GET /big?n={n} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as s:
            assert read_all(s).split(b"\r\n\r\n", 1)[1] == pattern(n)
    body = pattern(1 << 20)
    head = f"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    with server.dial(head.encode() + b"\r\n" + body) as s:
        assert read_all(s).split(b"\r\n\r\n", 1)[1] == body


def test_pipelined_requests(serve):
    """More requests in one record than the library reads at once: none waits for more bytes."""
    server = serve()
    n = 200
    last = b"GET /big?n=5 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with server.dial(b"GET /facts?q HTTP/1.1\r\nHost: x\r\n\r\n" * n + last) as s:
        assert read_all(s).count(b"/facts|q|-|-\n") == n


def test_slow_reader_loses_nothing_and_holds_up_nobody(serve):
    server = serve()
    n = 3_000_000
    with server.dial(f"GET /flood?n={n} HTTP/1.0\r\n\r\n") as slow:
        got = slow.recv(100)
        for _ in range(5):
            with server.dial("GET /flood?n=1000000 HTTP/1.0\r\n\r\n") as s:
                assert read_all(s).split(b"\r\n\r\n", 1)[1] == pattern(1_000_000)
        got += read_all(slow)
        assert got.split(b"\r\n\r\n", 1)[1] == pattern(n)


@pytest.mark.parametrize(
    "path", ["/hang", "/silent", "/stream?n=100000&hz=50", "/flood?n=1000000000"]
)
@pytest.mark.parametrize("how", ["close", "reset", "half", "bye"])
def test_leaving_is_noticed(serve, path, how):
    """bye: a TLS close_notify before the connection is closed."""
    server = serve()
    clients = [server.get(path) for _ in range(20)]
    server.wait_open(20)
    for s in clients:
        if how == "reset":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if how == "half":
            socket.socket.shutdown(s, socket.SHUT_WR)
        elif how == "bye":
            s.settimeout(0.001)
            try:
                s.unwrap()
            except OSError:
                pass
            s.close()
        else:
            s.close()
    server.wait_open(0)
    assert server.stats()["gone"] == 20
    for s in clients:
        s.close()


POST = b"POST /echo HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "request_, status",
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (POST + b"Content-Length: 20000000\r\n\r\n" + b"a" * 20_000_000, 413),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n"
         + b"1000\r\n" + b"a" * 4096 + b"\r\n"
         + b"2000000\r\n" + b"a" * 20_000_000, 413),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 17_000 + b"\r\n\r\n", 431),
    ],
    ids=range(4),
)
def test_refusals_can_be_read(serve, request_, status):
    server = serve()
    with server.dial() as s:
        try:
            s.sendall(request_)
        except OSError:
            pass  # the server has said goodbye; what it said can still be read
        answer = b""
        try:
            answer = read_all(s)
        except ssl.SSLError:
            pass
    assert answer.startswith(b"HTTP/1.") and int(answer.split()[1]) == status, answer
    assert server.stats()["begin"] == 1


def test_junk_instead_of_a_handshake(serve):
    server = serve(request=300)
    for junk in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 70_000,
                 b"\0" * 1000, b"\x16\x03\x01"):
        with socket.create_connection((HOST, server.port), timeout=PATIENCE_S) as s:
            try:
                s.sendall(junk)
                s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            assert b"HTTP/1" not in read_all(s)
    # one that says nothing is cut off like one that sends no request
    with socket.create_connection((HOST, server.port), timeout=PATIENCE_S) as s:
        assert read_all(s) == b""
    assert server.stats()["begin"] == 1


def test_idle_costs_nothing(serve):
    """Suspended connections and kept-alive ones leave the loop asleep."""
    server = serve()
    clients = [server.get("/silent") for _ in range(100)]
    for _ in range(100):
        clients.append(server.get("/facts"))
        read_until(clients[-1], b"/facts|")
    server.wait_open(100)
    server.wait_idle()
    cpu = server.loop_cpu_s()
    time.sleep(2)
    assert server.loop_cpu_s() - cpu < 0.3
    for s in clients:
        s.close()


def test_keep_alive_comments_and_stop(serve):
    server = serve(keepalive=100)
    with server.get("/silent") as s:
        assert b": keep-alive\n\n" in read_until(s, b": keep-alive\n\n")
        server.stop()
