"""Many clients, and clients that misbehave: nothing is lost, nothing leaks, nobody else waits."""

import asyncio
import json
import random
import re
import resource
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from conftest import few


def body(**more):
    return {"prompt": [1, 2, 3, 4, 5, 6, 7, 8], "max_tokens": 24, "temperature": 0,
            "ignore_eos": True, "stream": True, "return_tokens": True, **more}


async def stream_tokens(session, url, request):
    """The token ids of one streamed completion, of choice 0; asserts the shape of all."""
    tokens, finish, done = [], {}, False
    async with session.post(url + "/v1/completions", json=request) as r:
        assert r.status == 200, await r.text()
        async for line in r.content:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                done = True
                break
            choice = json.loads(data)["choices"][0]
            index = choice["index"]
            assert finish.get(index) is None, "a chunk after the last one"
            finish[index] = choice["finish_reason"]
            tokens += (choice.get("tokens") or []) if index == 0 else []
    assert done and finish == dict.fromkeys(range(request.get("n", 1)), "length")
    return tokens


def run_all(url, requests):
    async def go():
        timeout = aiohttp.ClientTimeout(total=300)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            return await asyncio.gather(*[stream_tokens(session, url, q) for q in requests])

    return asyncio.run(go())


def held_blocks(server):
    return server.metric('weir_kv_blocks{state="in_use"}')


def wait_until(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def resident_kb(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))


def sanitized(server):
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    return "libasan" in maps or "libtsan" in maps


def test_a_thousand_streams(start_server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    n = few(1000, 300)
    server = start_server()
    alone = run_all(server.url, [body()])[0]
    answers = run_all(server.url, [body() for _ in range(n)])
    assert all(a == alone for a in answers)
    wait_until(lambda: held_blocks(server) == 0)
    assert server.metric("weir_step_allocations_total") == 0
    assert server.metric('weir_request_success_total{finished_reason="length"}') == n + 1


def test_no_leak(start_server):
    server = start_server("--max-running", "32")
    for _ in range(few(3, 1)):
        run_all(server.url, [body(n=2) for _ in range(64)])
    warm = resident_kb(server)
    for _ in range(few(10, 1)):
        run_all(server.url, [body(n=2) for _ in range(64)])
    if not sanitized(server):  # whose allocator keeps freed memory aside; it finds leaks at exit
        assert resident_kb(server) < warm * 1.2 + 8192


def open_stream(server, request, receive_buffer=None):
    """A raw socket with a request sent, nothing read."""
    at = urlsplit(server.url)
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.connect((at.hostname, at.port))
    data = json.dumps(request).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data)
              + data)
    return s


def test_killed_clients(start_server):
    """Waves of clients that vanish at random moments: their requests end there, and every block comes back."""
    server = start_server("--max-running", "8")
    rng = random.Random(5)
    n_cut, whole = 0, 'weir_request_success_total{finished_reason="length"}'
    for wave in range(6):
        before = server.metric(whole)
        sockets = [open_stream(server, body(max_tokens=900, stream=wave % 2 == 0)) for _ in range(40)]
        time.sleep(rng.random() * 0.3)
        for s in sockets:
            if rng.random() < 0.5:  # a reset instead of an orderly end
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            s.close()
        wait_until(lambda: held_blocks(server) == 0)
        wait_until(lambda: server.metric("weir_requests_running") == 0)
        n_cut += server.metric(whole) - before < 20
    assert n_cut >= 4  # all, unless this program was held up
    assert len(run_all(server.url, [body()])[0]) == 24


def test_slow_reader_loses_nothing(start_server):
    server = start_server()
    slow = open_stream(server, body(max_tokens=700), receive_buffer=4096)
    run_all(server.url, [body() for _ in range(16)])  # the others are not held up
    wait_until(lambda: server.metric("weir_requests_running") == 0)
    slow.settimeout(60)
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        part = slow.recv(700)
        assert part, "the connection ended early"
        data += part
    slow.close()
    text = re.sub(rb"\r\n[0-9a-fA-F]+\r\n", b"", data)
    assert len(re.findall(rb"data: \{", text)) >= 700
    assert b"data: [DONE]" in text
