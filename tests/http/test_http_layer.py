"""The HTTP layer with a fake engine, against real clients: raw sockets and aiohttp.

WEIR_FAKE_APP names the program (tests/http/fake_app.c). After every test the server is stopped: it
exits with 0 only if each begin had exactly one end. What strangers send is in
test_hostile_requests.py.
"""

import asyncio
import json
import random
import select
import socket
import struct
import subprocess
import threading
import time

import aiohttp
import pytest

from layer import APP, HOST, PATIENCE_S, Server, pattern, read_all, read_until

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
        timeout = aiohttp.ClientTimeout(total=600)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            return await asyncio.gather(*(one(session) for _ in range(n_streams)))

    for text in asyncio.run(main()):
        events = [e for e in text.split("\n\n") if e]
        assert events[-1] == "data: [DONE]"
        assert [json.loads(e[6:])["i"] for e in events[:-1]] == list(range(n_events))
    server.wait_open(0)


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
    for _ in range(20):
        with server.dial("GET /flood?n=5000000 HTTP/1.0\r\n\r\n") as s:
            body = read_all(s).split(b"\r\n\r\n", 1)[1]
            assert body == pattern(5_000_000)
        with server.dial("GET /stream?n=50&hz=0 HTTP/1.0\r\n\r\n") as s:
            assert read_all(s).endswith(b"data: [DONE]\n\n")
    stop.set()
    t.join()
    assert len(got) < n  # alone it would have taken 600 s
    slow.settimeout(PATIENCE_S)
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
    server.wait_open(0)


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
def test_leaving_is_noticed(serve, path, how):
    server = serve()
    clients = [server.get(path) for _ in range(50)]
    server.wait_open(50)
    for s in clients:
        if how == "reset":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if how == "half":
            s.shutdown(socket.SHUT_WR)
        else:
            s.close()
    server.wait_open(0)
    st = server.stats()
    assert st["gone"] == 50 and st["begin"] == st["requests"]
    for s in clients:
        s.close()


@pytest.mark.parametrize("path", ["/hang", "/silent", "/stream?n=100000&hz=50", "/flood?n=1000000000"])
def test_who_leaves_is_let_go_while_others_idle(serve, path):
    server = serve()
    with server.get("/facts") as kept:
        read_until(kept, b"/facts|")
        for _ in range(5):
            with server.get(path) as s:
                if path != "/hang":
                    read_until(s, b"\r\n\r\n")
        server.wait(lambda st: st["connections"] == 2)  # it, and the one that asks


def let_go(server, held):
    """They are answered one after the other, each once it has begun, by what waits for no worker."""
    while held:
        with server.get("/now") as s:
            assert b"200 OK" in read_until(s, b"now\n")
        for s in select.select(held, [], [], 0.1)[0]:
            assert b"held" in read_until(s, b"held\n")
            s.close()
            held.remove(s)


def test_leaving_while_queued_for_begin(serve):
    server = serve(workers=1)
    first = server.get("/held")
    server.wait_open(1)
    for _ in range(50):
        server.get("/hang").close()
    server.stats()
    let_go(server, [first])
    server.wait_open(0)
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
        server.wait_open(1 if n_cut else 0)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leaves with a reset
        s.close()
        server.wait_open(0)
        st = server.stats()
        assert st["end"] - st["whole"] == n_cut, path


def test_large_bodies_leave_a_worker_to_others(serve):
    """One after the other they have the other one; what has begun with one is answered in its turn."""
    server = serve()
    body = b"x" * 100_000
    large = [server.dial(b"GET /held HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + body) for _ in range(3)]
    n_asked = 1
    while server.stats()["requests"] < 3 + n_asked:
        n_asked += 1
    with server.get("/facts") as s:
        assert b"200 OK" in read_until(s, b"/facts|")  # it waited for none of them
    assert select.select(large, [], [], 0)[0] == []
    let_go(server, large)
    server.wait_open(0)


def test_what_takes_no_time_waits_for_no_worker(serve):
    server = serve(workers=1)
    held = [server.get("/held") for _ in range(3)]
    server.wait_open(1)  # the others wait for the worker
    assert select.select(held, [], [], 0)[0] == []
    let_go(server, held)


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
    server.wait(lambda st: st["connections"] == 1)
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
    rest = read_all(s)
    assert rest.endswith(pattern(3_000_000)[-1000:])
    s.close()


# ---- limits -------------------------------------------------------------------------------


def test_out_of_descriptors_does_not_spin():
    """More clients than the process may have files: it lives, and idles."""
    args = ["/bin/sh", "-c", f"ulimit -n 64; exec {APP} connections=1000"]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
    server = Server.__new__(Server)
    server.process, server.port = process, int(process.stdout.readline().split()[1])
    clients = [server.dial() for _ in range(300)]
    time.sleep(0.2)
    cpu = server.loop_cpu_s()
    time.sleep(1)
    assert server.loop_cpu_s() - cpu < 0.1
    for s in clients:
        s.close()
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
    server.wait_open(500)
    server.wait_idle()
    cpu = server.loop_cpu_s()
    time.sleep(2)
    assert server.loop_cpu_s() - cpu < 0.3
    for s in clients:
        s.close()


def test_connections_over_the_limit(serve):
    server = serve(connections=10)
    clients = [server.get("/hang") for _ in range(10)]
    server.wait_idle()
    with server.get("/big") as s:
        answer = read_all(s)
        assert answer.startswith(b"HTTP/1.1 503") and b'{"error"' in answer
    for s in clients:
        s.close()
    server.wait_open(0)


# ---- stopping -----------------------------------------------------------------------------


def test_stop_lets_streams_end(serve):
    server = serve(grace=10 * PATIENCE_S * 1000)
    s = server.get("/stream?n=50&hz=100")
    read_until(s, b"data:")
    server.stop()
    assert b"[DONE]" in read_all(s)
    with pytest.raises(ConnectionRefusedError):
        server.dial()


def test_stop_cuts_the_rest_after_the_grace(serve):
    server = serve(grace=500)
    clients = [server.get(p) for p in ("/hang", "/silent", "/flood?n=1000000000", "/slow?ms=900")]
    server.wait_open(4)
    begin = time.time()
    server.stop()
    assert time.time() - begin > 0.4
    for s in clients:
        read_all(s)
        s.close()
