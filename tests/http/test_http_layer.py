"""The HTTP layer with a fake engine, against real clients: raw sockets and aiohttp.

WEIR_FAKE_APP names the program (tests/http/fake_app.c); WEIR_SEED repeats a random test. After
every test the server is stopped: it exits with 0 only if each begin had exactly one end.
"""

import asyncio
import json
import os
import random
import resource
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import aiohttp
import pytest

APP = os.environ.get("WEIR_FAKE_APP", "build/tests/http/fake_app")
HOST = "127.0.0.1"
SLOW = 5 if os.environ.get("WEIR_SANITIZED") else 1  # patience with instrumented builds

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Server:
    def __init__(self, **options):
        args = [APP] + [f"{k}={v}" for k, v in options.items()]
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])
        self.url = f"http://{HOST}:{self.port}"

    def dial(self, text=None):
        s = socket.create_connection((HOST, self.port), timeout=10)
        if text is not None:
            s.sendall(text if isinstance(text, bytes) else text.encode())
        return s

    def get(self, path):
        return self.dial(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")

    def stats(self):
        while True:
            with self.dial("GET /stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as s:
                head, body = read_all(s).split(b"\r\n\r\n", 1)
            if b" 503 " not in head:  # it counts as a connection itself
                return json.loads(body)
            time.sleep(0.05)

    def open_calls(self):
        st = self.stats()
        return st["begin"] - st["end"] - 1  # less the one that asks

    def wait_open(self, n, seconds=1.0):
        end = time.time() + seconds * SLOW
        while time.time() < end:
            if self.open_calls() == n:
                return True
            time.sleep(0.01)
        return False

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, out


@pytest.fixture
def serve():
    servers = []

    def start(**options):
        servers.append(Server(**options))
        return servers[-1]

    yield start
    for s in servers:
        if s.process.poll() is None:
            s.stop()


def read_all(s):
    pieces = []
    try:
        while piece := s.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def read_until(s, what):
    data = b""
    while what not in data:
        piece = s.recv(65536)
        if not piece:
            break
        data += piece
    return data


def pattern(n):
    unit = bytes(ord("a") + i * 7 % 26 for i in range(26))
    return (unit * (n // 26 + 1))[:n]


# ---- many streams -------------------------------------------------------------------------


def test_a_thousand_streams_get_every_event(serve):
    server = serve()
    n_streams, n_events = 1000, 20

    async def one(session):
        async with session.get(f"{server.url}/stream?n={n_events}&hz=20&size=50&spread=1") as r:
            assert r.status == 200
            return await r.text()

    async def main():
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            return await asyncio.gather(*(one(session) for _ in range(n_streams)))

    for text in asyncio.run(main()):
        events = [e for e in text.split("\n\n") if e]
        assert events[-1] == "data: [DONE]"
        assert [json.loads(e[6:])["i"] for e in events[:-1]] == list(range(n_events))
    assert server.wait_open(0)


def test_slow_reader_loses_nothing_and_holds_up_nobody(serve):
    """1 KB/s through a small window, while others run at full speed."""
    server = serve()
    n = 600_000
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect((HOST, server.port))
    slow.sendall(f"GET /flood?n={n} HTTP/1.0\r\n\r\n".encode())
    got = bytearray()
    stop = threading.Event()

    def trickle():
        while not stop.is_set():
            got.extend(slow.recv(100))
            time.sleep(0.1)

    t = threading.Thread(target=trickle)
    t.start()
    begin = time.time()
    for _ in range(20):
        with server.dial("GET /flood?n=5000000 HTTP/1.0\r\n\r\n") as s:
            body = read_all(s).split(b"\r\n\r\n", 1)[1]
            assert body == pattern(5_000_000)
        with server.dial("GET /stream?n=50&hz=0 HTTP/1.0\r\n\r\n") as s:
            assert read_all(s).endswith(b"data: [DONE]\n\n")
    assert time.time() - begin < 90 * SLOW  # the slow reader alone would take 600 s
    time.sleep(1)
    stop.set()
    t.join()
    assert len(got) < 100_000
    slow.settimeout(20)
    got += read_all(slow)
    assert bytes(got).split(b"\r\n\r\n", 1)[1] == pattern(n)
    slow.close()


def test_big_answers_arrive_whole(serve):
    server = serve()
    for n in (0, 1, 65_535, 65_536, 65_537, 3_000_000):
        with server.dial(f"GET /big?n={n} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as s:
            head, body = read_all(s).split(b"\r\n\r\n", 1)
            assert f"Content-Length: {n}".encode() in head
            assert body == pattern(n)


@pytest.mark.parametrize("path, length", [
    ("/big?n=5", 5), ("/big?n=300000", 300_000), ("/flood?n=300000&length=1", 300_000),
    ("/flood?n=300000", None), ("/stream?n=3&hz=50", None), ("/silent", None)])
def test_head_is_a_head_alone(serve, path, length):
    """No byte behind it, so that the next answer on the connection begins where it should."""
    server = serve()
    with server.dial(f"HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"
                     "GET /facts HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as s:
        head, rest = read_all(s).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 ") and b"Transfer-Encoding" not in head
    if length is None:  # how long it is nobody knows; the connection ends with it
        assert b"Content-Length" not in head and b"\r\nConnection: close" in head and rest == b""
    else:
        assert b"\r\nContent-Length: %d" % length in head and rest.startswith(b"HTTP/1.1 200 ")
        assert rest.endswith(b"/facts||-|-\n")
    assert server.wait_open(0)


def test_a_stream_may_have_a_length(serve):
    server = serve()
    with server.dial("GET /flood?n=3000000&length=1 HTTP/1.1\r\nHost: x\r\n\r\n"
                     "GET /facts HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as s:
        head, rest = read_all(s).split(b"\r\n\r\n", 1)
    assert b"\r\nContent-Length: 3000000" in head and b"Transfer-Encoding" not in head
    assert rest[:3_000_000] == pattern(3_000_000) and rest[3_000_000:].startswith(b"HTTP/1.1 200 ")


def test_bodies_go_round(serve):
    server = serve()
    rng = random.Random(1)

    async def main():
        async with aiohttp.ClientSession() as session:
            for size in (0, 1, 100, 70_000, 1 << 20):
                data = rng.randbytes(size)
                async with session.post(f"{server.url}/echo", data=data) as r:
                    assert await r.read() == data

                async def pieces():
                    for i in range(0, len(data), 5000):
                        yield data[i : i + 5000]

                async with session.post(f"{server.url}/echo", data=pieces()) as r:
                    assert await r.read() == data

    asyncio.run(main())
    assert server.stats()["accepted"] <= 3  # kept alive


# ---- clients that leave -------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/hang", "/silent", "/stream?n=100000&hz=50", "/flood?n=1000000000"]
)
@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_leaving_is_noticed_within_a_second(serve, path, how):
    server = serve()
    clients = [server.get(path) for _ in range(50)]
    assert server.wait_open(50)
    for s in clients:
        if how == "reset":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if how == "half":
            s.shutdown(socket.SHUT_WR)
        else:
            s.close()
    assert server.wait_open(0)
    st = server.stats()
    assert st["gone"] == 50 and st["begin"] == st["requests"]
    for s in clients:
        s.close()


def test_leaving_while_queued_for_begin(serve):
    server = serve(workers=1)
    first = server.get("/slow?ms=500")
    time.sleep(0.1)
    for _ in range(50):
        server.get("/hang").close()
    assert b"slow" in read_until(first, b"slow\n")
    first.close()
    assert server.wait_open(0)
    st = server.stats()
    assert st["gone"] == 50 and st["left"] == 50 and st["begin"] == st["requests"]
    assert st["pull"] == st["begin"] - 50 - 1  # nothing was made for those who had left, and not yet for this


def test_whether_all_of_an_answer_went_out(serve):
    """The application is told when a call ends."""
    server = serve()
    asked = [("/facts", b"-|-\n", 0), ("/stream?n=3", b"[DONE]\n\n", 0), ("/big?n=200000", pattern(200_000)[-99:], 0),
             ("/big?n=20000000", b"a", 1), ("/flood?n=20000000", b"a", 2), ("/hang", b"", 3), ("/silent", b"", 4)]
    for path, last, n_cut in asked:
        s = server.get(path)
        read_until(s, b"\r\n\r\n" if last == b"a" else last)
        assert server.wait_open(1 if n_cut else 0)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leaves with a reset
        s.close()
        assert server.wait_open(0)
        st = server.stats()
        assert st["end"] - st["whole"] == n_cut, path


def test_large_bodies_leave_a_worker_to_others(serve):
    """One after the other they have the other one; what has begun with one is answered in its turn."""
    server = serve()
    body = b"x" * 100_000
    large = [server.dial(b"GET /slow?ms=%d HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" % (1000 * SLOW) + body)
             for _ in range(3)]
    n_asked = 1
    while server.stats()["requests"] < 3 + n_asked:
        n_asked += 1
    with server.get("/facts") as s:
        assert b"200 OK" in read_until(s, b"/facts|")
    assert select.select(large, [], [], 0)[0] == []  # it waited for none of them
    for s in large:
        assert b"slow" in read_until(s, b"slow\n")
        s.close()
    assert server.wait_open(0)


def test_what_takes_no_time_waits_for_no_worker(serve):
    server = serve(workers=1)
    busy = [server.get(f"/slow?ms={1000 * SLOW}") for _ in range(3)]
    time.sleep(0.1 * SLOW)
    with server.get("/now") as s:
        assert b"200 OK" in read_until(s, b"now\n")
    assert select.select(busy, [], [], 0)[0] == []
    for s in busy:
        assert b"slow" in read_until(s, b"slow\n")
        s.close()


@pytest.mark.parametrize("part", [
    b"", b"\r\n", b"POST /echo HTTP/1.1\r\nHo", b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
    b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 100_000,
    b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
    b"GET /facts HTTP/1.1\r\nHost: x\r\n\r\nGET /fa"], ids=range(7))
@pytest.mark.parametrize("how", ["close", "half"])
def test_leaving_amid_a_request_leaves_nothing_behind(serve, part, how):
    """Its last bytes and the end of the stream come at once; nobody may have to wait for its place."""
    server = serve(body=4 << 20, connections=50)
    clients = []
    for _ in range(10):
        for _ in range(10):
            s = server.dial(part)
            clients.append(s)
            s.shutdown(socket.SHUT_WR) if how == "half" else s.close()
        time.sleep(0.02)
    end = time.time() + 0.5 * SLOW
    while (left := server.stats()["connections"]) > 1 and time.time() < end:
        time.sleep(0.01)
    assert left == 1
    for s in clients:
        s.close()


def test_half_closed_can_read_why_it_was_refused(serve):
    server = serve()
    for request in (b"GET / HTTP/1.1\r\n\r\n", b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\nab"):
        for wait in (0, 0.01, 0.1):
            with server.dial(request[:-4]) as s:
                time.sleep(wait)
                s.sendall(request[-4:])
                s.shutdown(socket.SHUT_WR)
                assert read_all(s).startswith(b"HTTP/1.1 4")


def test_half_closed_does_no_harm_to_a_complete_answer(serve):
    server = serve()
    s = server.get("/big?n=3000000")
    read_until(s, b"\r\n\r\n")
    s.shutdown(socket.SHUT_WR)
    s.settimeout(5)
    rest = read_all(s)
    assert rest.endswith(pattern(3_000_000)[-1000:])
    s.close()


# ---- hostile input ------------------------------------------------------------------------


POST = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "request_, status",
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"G\x01T / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (POST + b"Content-Length: x\r\n\r\n", 400),
        (POST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n", 400),
        (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n", 501),
        (POST + b"Content-Length: 20000000\r\n\r\n" + b"a" * 20_000_000, 413),
        (POST + CHUNKED + b"\r\n"
         + b"1000\r\n" + b"a" * 4096 + b"\r\n"
         + b"2000000\r\n" + b"a" * 20_000_000, 413),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 17_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 20_000_000, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 100_000, 431),
        (b"GET /" + b"a" * 1_000_000, 414),
        (b"GET / HTTP/7.7\r\nHost: x\r\n\r\n", 505),
        (POST + b"Content-Encoding: gzip\r\nContent-Length: 200000\r\n\r\n" + b"a" * 200_000, 415),
        (POST + b"Content-Encoding: br\r\n" + CHUNKED + b"\r\n5\r\nabcde\r\n0\r\n\r\n", 415),
    ],
    ids=range(16),
)
def test_refusals_can_be_read(serve, request_, status):
    server = serve()
    with server.dial() as s:
        try:
            s.sendall(request_)  # all of it, before the answer is looked at
        except (ConnectionResetError, BrokenPipeError):
            pytest.fail("reset while the request was sent")
        answer = read_all(s)
    assert answer.startswith(b"HTTP/1."), answer
    assert int(answer.split()[1]) == status
    assert server.stats()["begin"] == 1


@pytest.mark.parametrize("request_, status", [
    (b"GET /%00 HTTP/1.1\r\nHost: x\r\n", 400),
    (POST + b"Content-Length: 20000000\r\n", 413),
    (POST + CHUNKED, 413),
    (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 17_000 + b"\r\n", 431),
    (POST + b"Transfer-Encoding: gzip\r\n", 501),
    (POST + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n", 415),
], ids=range(6))
def test_refusals_have_an_id(serve, request_, status):
    server = serve()
    for line, want in ((b"", b"made-up"), (b"X-Request-Id: r-1\r\n", b"r-1")):
        body = b"2000000\r\n" + b"a" * 0x2000000 if CHUNKED in request_ else b""
        with server.dial() as s:
            s.sendall(request_ + line + b"\r\n" + body)
            answer = read_all(s)
        assert int(answer.split()[1]) == status
        assert b"\r\nX-Request-Id: " + want + b"\r\n" in answer, answer
        assert b"Also-Id" not in answer
        with server.dial() as s:  # where the application has a second name for it
            s.sendall(request_.replace(b" /", b" /also/", 1) + line + b"\r\n" + body)
            answer = read_all(s)
        assert b"\r\nX-Request-Id: " + want + b"\r\nAlso-Id: " + want + b"\r\n" in answer, answer


@pytest.mark.parametrize("value", ["gzip", "deflate", "br", "zstd", "x", "identity, gzip", "gzip\r\nContent-Encoding: gzip",
                                   "identity\r\nContent-Encoding: gzip", "gzip\r\nContent-Encoding: identity", "identity gzip;q=0", "identityx"])
def test_bodies_are_not_decompressed(serve, value):
    """The answer says so before the body is read, and what would be taken."""
    server = serve()
    with server.dial(f"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: {value}\r\nContent-Length: 9\r\n\r\n") as s:
        answer = read_all(s)
    assert answer.startswith(b"HTTP/1.1 415 ") and b"\r\nAccept-Encoding: identity\r\n" in answer
    assert b"Content-Encoding" in answer.split(b"\r\n\r\n", 1)[1]


def test_an_encoding_that_is_none(serve):
    server = serve()
    for head, want in (("Content-Encoding: Identity\r\nContent-Length: 2", b"ab"), ("Content-Encoding: \r\nContent-Length: 2", b"ab"),
                       *[(f"Content-Encoding: {value}\r\nContent-Length: 2", b"ab") for value in (
                           "identity ", "identity\t", "identity, identity", "identity ,identity,", ",", "identity\r\nContent-Encoding: identity")],
                       ("Content-Encoding: gzip\r\nContent-Length: 0", b"")):
        with server.dial(f"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}\r\n\r\n{want.decode()}") as s:
            answer = read_all(s)
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\n" + want), answer
    with server.dial("GET /facts HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Encoding: gzip\r\n\r\n") as s:
        assert read_all(s).startswith(b"HTTP/1.1 200 ")


def test_header_values_do_not_come_back_unchecked(serve):
    server = serve()
    for value in ("a b", "a\tb", "\x7f", "x" * 129, "\xff"):
        text = f"GET /big HTTP/1.1\r\nHost: x\r\nX-Request-Id: {value}\r\nConnection: close\r\n\r\n"
        with server.dial(text.encode("latin-1")) as s:
            assert b"X-Request-Id: none\r\n" in read_all(s)
    with server.dial("GET /big HTTP/1.0\r\nX-Request-Id: r-1\r\n\r\n") as s:
        assert b"X-Request-Id: r-1\r\n" in read_all(s)


@pytest.mark.parametrize("line", [
    b"Content-Length : 5", b"Content-Length\t: 5", b"Host : y", b"Host: y", b"X-\x7f: 1", b"X(: 1",
    b"X-A: b\x01c", b"X-Request-Id: a\0b", b"X-Request-Id: a\0", b"X-A: a\0b\r\nX-B: c", b"X-A: a\0 \t\nX-B: c",
    b"Content-: 5\r\n Length", b"X-A: b\r\n c\r\nX-B: d", b"X-A: b\r\n\tc"])
def test_headers_that_two_readers_could_read_differently(serve, line):
    """Refused, and what follows is nobody's request."""
    server = serve()
    text = b"POST /facts HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\nGET /facts HTTP/1.1\r\nHost: x\r\n\r\n"
    with server.dial(text) as s:
        answer = read_all(s)
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1, answer


def test_heads_that_are_odd_but_plain(serve):
    server = serve()
    for lines in (b"X-A:\r\n", b"X-A:b\r\nCookie: a=b; c=\"d\"; e\r\nX-B: c\r\n", b"X-A: b  \t\r\nX-B:\t c \r\n",
                  b"X-A: b\nX-B: c\n", b"Cookie: a=b\n", b"".join(b"X-%d: %d\r\n" % (i, i) for i in range(500))):
        for end in (b"\r\n", b"\n"):
            text = b"GET /facts?a=b&c HTTP/1.1" + end + b"Host: x\r\n" + lines + end
            with server.dial() as s:
                s.sendall(text * 2 + text[:40])
                time.sleep(0.01)
                s.sendall(text[40:])
                answer = b""
                while answer.count(b"|-|-\n") < 3 and (piece := s.recv(65536)):
                    answer += piece
                assert answer.count(b"HTTP/1.1 200 ") == answer.count(b"/facts|a=b&c|-|-\n") == 3, answer


@pytest.mark.parametrize("target, path, query", [
    ("http://x/facts", "/facts", ""), ("HTTP://[::1]:80/facts?a=/b?", "/facts", "a=/b?"),
    ("https://me@x/%66acts?%66", "/facts", "%66")])
def test_a_target_may_name_the_host(serve, target, path, query):
    """What proxies are sent; a server has to take it (RFC 9112, 3.2.2)."""
    server = serve()
    with server.dial(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as s:
        answer = read_all(s)
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(f"\r\n\r\n{path}|{query}|-|-\n".encode())


@pytest.mark.parametrize("target, status", [
    ("http://x", 404), ("http://x?q", 404), ("http:///facts", 404), ("http:/facts", 404), ("ftp://x/facts", 404),
    ("http://x%2Ffacts", 404), ("http://x y/facts", 400), ("http://x/%00", 400), ("/facts\0", 400),
    ("/facts\0x", 400)])
def test_targets_that_are_nothing(serve, target, status):
    server = serve()
    with server.dial(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as s:
        assert read_all(s).startswith(b"HTTP/1.1 %d " % status)


def test_answers_that_take_long_are_made_beside_the_loop(serve):
    """One whose client stays, and one whose client leaves meanwhile."""
    server = serve()
    get = "GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with server.dial(get.format("/work")) as stays, server.dial(get.format("/work")) as leaves:
        time.sleep(0.2)
        leaves.close()
        time.sleep(0.2)
        with server.dial(get.format("/stats")) as other:
            assert b'"end": 0' in read_all(other)
        assert read_all(stays).endswith(b"\r\n\r\nworked\n")


def test_pipelined_requests_and_junk(serve):
    server = serve()
    n = 200
    with server.dial(b"GET /facts?q HTTP/1.1\r\nHost: x\r\n\r\n" * n + b"\1\2JUNK\r\n\r\n") as s:
        answer = read_all(s)
    assert answer.count(b"/facts|q|-|-\n") == n
    last = b"GET /big?n=5 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with server.dial(b"\0" * 1000 + b"\r\n\r\n" + last) as s:
        assert b"ahovc" in read_all(s)  # the library takes a line of NULs for an empty one
    stream = b"GET /stream?n=3&hz=50 HTTP/1.1\r\nHost: x\r\n\r\n"
    with server.dial(stream + b"\xff" * 100_000) as s:
        assert b"[DONE]" in read_all(s)
    assert server.wait_open(0)


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.randrange(6)):
        if not data:
            break
        i = rng.randrange(len(data))
        what = rng.randrange(4)
        if what == 0:
            data[i] = rng.randrange(256)
        elif what == 1:
            del data[i : i + rng.randrange(10)]
        elif what == 2:
            data[i:i] = rng.randbytes(rng.randrange(10))
        else:
            data[i:i] = data[rng.randrange(len(data)) :][: rng.randrange(100)]
    return bytes(data)


def test_large_bodies_leave_room_for_small_ones():
    """What all bodies take together is bounded; who leaves or is answered gives its part back."""
    server = Server(body=1 << 20, held=1 << 20)
    half = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n"
    small = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 60000\r\n\r\n"
    wait, end = 0.05, time.time() + 20 * SLOW
    while True:  # until its bytes were there first, and the other one was refused
        holder = server.dial(half + b"x" * 999_999)
        time.sleep(wait)
        with server.dial(half + b"y" * 200_000) as s:
            s.settimeout(0.2 * SLOW)
            try:
                refusal = s.recv(4096)
                assert b" 503 " in refusal and b"\r\nRetry-After: 5\r\n" in refusal
                break
            except TimeoutError:
                assert time.time() < end
                holder.close()
                wait *= 2
    with server.dial(small + b"z" * 60_000) as s:
        assert b" 200 " in read_all(s)
    holder.sendall(b"x")
    assert b" 200 " in read_all(holder)
    holder.close()
    for _ in range(3):
        with server.dial(half + b"y" * 1_000_000) as s:
            assert b" 200 " in read_all(s)
    server.stop()


def test_a_body_that_was_read_holds_nothing(serve):
    """Its answer may take as long as it likes, in the making or in the reading."""
    server = serve(body=1 << 20, held=1 << 20)
    waiting = server.dial(b"GET /hang HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000)
    assert server.wait_open(1)
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n"
    with server.dial(head + b"y" * 1_000_000) as s:
        assert b" 200 " in read_all(s)
    waiting.close()


def test_answers_that_nobody_reads_are_bounded(serve):
    """Together; the one whose reader took nothing for longest is given up, and those who read get all."""
    server = serve(held=26 << 20)
    n = 8_000_000  # in a buffer of 8 MiB; the sockets take up to 4 MB of it

    def begin():
        s = server.dial(f"GET /big?n={n} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.settimeout(10 * SLOW)
        return s, len(read_until(s, b"\r\n\r\n"))

    readers = [begin(), begin()]
    time.sleep(0.3 * SLOW)  # the sockets are full
    some = len(b"".join(readers[0][0].recv(65536) for _ in range(16)))  # the first goes on reading
    time.sleep(0.1 * SLOW)
    readers.append(begin())
    assert server.stats()["dropped"] == 0
    readers.append(begin())
    stats = server.stats()
    assert [stats["dropped"], stats["gone"]] == [1, 0]
    got = [begun + len(read_all(s)) for s, begun in readers]
    got[0] += some
    assert got[1] < n and all(k > n for k in [got[0], *got[2:]]), got
    for s, _ in readers:
        s.close()


def test_random_bytes(serve):
    seed = int(os.environ.get("WEIR_SEED", time.time_ns() % 1_000_000))
    print("seed", seed)
    rng = random.Random(seed)
    server = serve(request=500)
    seeds = [
        b"GET /stream?n=5&hz=0 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789",
        POST + CHUNKED + b"\r\n5;a=b\r\nabcde\r\n0\r\nT: t\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        b"GET /late?ms=10 HTTP/1.0\r\nConnection: keep-alive\r\nCookie: a=b; c=\"d\"\r\n\r\n",
        b"HEAD /flood HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
    sockets = []
    for _ in range(1500):
        data = b"".join(mutate(rng, rng.choice(seeds)) for _ in range(rng.randrange(1, 4)))
        s = server.dial()
        s.settimeout(0.002)
        try:
            s.sendall(data)
            if rng.randrange(2):
                s.recv(1000)
        except OSError:
            pass
        sockets.append(s)
        if len(sockets) > 50:
            sockets.pop(rng.randrange(len(sockets))).close()
    for s in sockets:
        s.close()
    assert server.wait_open(0, 2)


# ---- limits -------------------------------------------------------------------------------


def test_out_of_descriptors_does_not_spin():
    """More clients than the process may have files: it lives, and idles."""
    args = ["/bin/sh", "-c", f"ulimit -n 64; exec {APP} connections=1000"]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
    server = Server.__new__(Server)
    server.process, server.port = process, int(process.stdout.readline().split()[1])
    clients = [server.dial() for _ in range(300)]
    time.sleep(0.2)
    cpu = server.cpu_s()
    time.sleep(1)
    assert server.cpu_s() - cpu < 0.1
    for s in clients:
        s.close()
    time.sleep(0.2)
    assert server.stats()["begin"] == 1
    server.stop()


@pytest.mark.parametrize("limit, said", [(2343, True), (2344, False)])
def test_too_few_descriptors_are_told(limit, said):
    """Beside connections there are those of batches and of the disk cache."""
    args = ["/bin/sh", "-c", f"ulimit -n {limit}; exec {APP} connections=1000"]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.terminate()
    assert ("too few for 1000 connections" in process.communicate()[1]) == said


def test_idle_costs_nothing(serve):
    server = serve()
    clients = [server.get("/silent") for _ in range(500)] + [server.dial() for _ in range(500)]
    assert server.wait_open(500)
    cpu = server.cpu_s()
    time.sleep(2)
    # mostly the fake engine, which wakes every millisecond
    assert server.cpu_s() - cpu < 0.3 * SLOW
    for s in clients:
        s.close()


def test_connections_over_the_limit(serve):
    server = serve(connections=10)
    clients = [server.get("/hang") for _ in range(10)]
    time.sleep(0.1)
    with server.get("/big") as s:
        answer = read_all(s)
        assert answer.startswith(b"HTTP/1.1 503") and b'{"error"' in answer
    for s in clients:
        s.close()
    assert server.wait_open(0)


# ---- stopping -----------------------------------------------------------------------------


def test_stop_lets_streams_end(serve):
    server = serve(grace=10_000)
    s = server.get("/stream?n=50&hz=100")
    read_until(s, b"data:")
    begin = time.time()
    server.stop()
    assert time.time() - begin < 5 * SLOW
    assert b"[DONE]" in read_all(s)
    with pytest.raises(ConnectionRefusedError):
        server.dial()


def test_stop_cuts_the_rest_after_the_grace(serve):
    server = serve(grace=500)
    clients = [server.get(p) for p in ("/hang", "/silent", "/flood?n=1000000000", "/slow?ms=900")]
    time.sleep(0.2)
    begin = time.time()
    server.stop()
    assert 0.4 < time.time() - begin < 3 * SLOW
    for s in clients:
        read_all(s)
        s.close()
