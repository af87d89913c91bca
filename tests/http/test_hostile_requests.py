"""What strangers send to the HTTP layer: requests that are odd, broken, too large, cut or random.

WEIR_SEED repeats a random test.
"""

import os
import random
import socket
import time

import pytest

from layer import SLOW, Server, read_all, read_until

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
        server.wait_idle()
        leaves.close()
        server.wait_idle()
        assert server.stats()["end"] == 0
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
    server.wait_open(0)


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
    server.wait_open(1)
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
        return s, len(read_until(s, b"\r\n\r\n"))

    readers = [begin(), begin()]
    server.wait_idle()  # the sockets are full
    some = len(b"".join(readers[0][0].recv(65536) for _ in range(16)))  # the first goes on reading
    server.wait_idle()
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
    server.wait_open(0)
