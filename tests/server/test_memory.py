"""A server that the system refuses memory: it says so to whom it concerns, and goes on."""

import json
import os
import resource
import socket
import time
import urllib.parse

import pytest

from conftest import MODEL
from uploads import form

# A sanitizer reserves more addresses than any limit.
pytestmark = pytest.mark.skipif("WEIR_FEW_SHAPES" in os.environ, reason="sanitized")

SMALL = {"prompt": "Once", "max_tokens": 4}


def allow(server, mib):
    """So much more than it has now. Until it is free again what was allowed may be used once."""
    with open(f"/proc/{server.process.pid}/statm") as f:
        now = int(f.read().split()[0]) * resource.getpagesize()
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (now + (mib << 20),) * 2)


def still_serves(server):
    """Also before what others had is given back."""
    end = time.monotonic() + 30
    while server.request("POST", "/v1/completions", SMALL)[0] != 200:
        assert time.monotonic() < end and server.process.poll() is None, server.log
        time.sleep(0.1)


def refused(status, data):
    return status == 503 and b"memory" in data


def test_an_answer_without_room(start_server):
    server = start_server()
    allow(server, 60)
    status, _, data = server.request("POST", "/tokenize", {"content": "a b" * 5_000_000})
    assert refused(status, data), data[:200]
    still_serves(server)


def test_a_body_without_room_is_not_called_wrong(start_server):
    server = start_server()
    allow(server, 200)
    body = b'{"content":[' + b",".join([b'{"":{}}'] * 1_900_000) + b"]}"
    status, _, data = server.request("POST", "/tokenize", body)
    assert refused(status, data), data[:200]
    still_serves(server)


def test_biases_without_room(start_server):
    """A text that is one token again and again: no list of them all is made."""
    server = start_server()
    allow(server, 180)
    body = {**SMALL, "n_predict": 4, "logit_bias": [[" a b c d e f" * 1_250_000, 0.5]]}
    status, _, data = server.request("POST", "/completion", body)
    assert status == 200 or refused(status, data), data[:200]
    still_serves(server)


@pytest.mark.parametrize("path, field", [("/v1/completions", "prompt"), ("/completion", "prompt"),
                                         ("/detokenize", "tokens")])
def test_ids_without_room(start_server, path, field):
    """The body itself still has room, at some of these limits; the ids that it names have none."""
    body = f'{{"{field}":[{"1," * 7_500_000}1]}}'.encode()
    for mib in range(266, 339, 12):
        server = start_server()
        allow(server, mib)
        status, _, data = server.request("POST", path, body)
        assert status in (200, 400) or refused(status, data), data[:200]
        still_serves(server)
        server.stop()


TEXT = "x" * 15_000_000
PARTS = [{"type": "text", "text": TEXT}]


@pytest.mark.parametrize("path, body, limits", [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": PARTS}]}, (43, 64)),
    ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": PARTS}]}, (43, 64)),
    ("/v1/messages", {"max_tokens": 1, "system": TEXT, "messages": [{"role": "user", "content": "a"}]}, (43, 64)),
    ("/v1/responses", {"input": TEXT}, (60, 84)),
    ("/v1/responses", {"input": [{"role": "user", "content": TEXT}]}, (60, 84)),
    ("/v1/responses", {"input": [{"type": "shell_call_output", "id": "a", "output": [TEXT]}]}, (60, 84)),
    ("/v1/responses", {"input": "a", "instructions": TEXT}, (60, 84)),
    ("/v1/completions", {"prompt": "a", "max_tokens": 1, "guided_choice": ["a"] * 2_800_000}, (280, 352)),
], ids=["chat parts", "messages parts", "system", "input", "input text", "output", "instructions", "choice"])
def test_what_a_body_says_without_room(start_server, path, body, limits):
    """The body itself still has room, at some of these limits; what is made of it has none."""
    body = json.dumps(body, separators=(",", ":")).encode()
    for mib in range(limits[0], limits[1], (limits[1] - limits[0]) // 6):
        server = start_server()
        allow(server, mib)
        status, _, data = server.request("POST", path, body)
        assert status in (200, 400) or refused(status, data), data[:200]
        still_serves(server)
        server.stop()


def test_forms_without_room(start_server, tmp_path):
    """16 uploads that wait for their last bytes: together they have more than there is."""
    server = start_server("--batch-dir", tmp_path)
    allow(server, 100)
    body = form([("purpose", None, b"batch"), ("file", "in.jsonl", b"x" * 15_000_000)])
    head = (f"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: multipart/form-data; boundary=b0undary\r\nConnection: close\r\n\r\n")
    address = urllib.parse.urlparse(server.url)
    clients = [socket.create_connection((address.hostname, address.port), 60) for _ in range(16)]
    answers = []

    def send(client, data):
        try:
            client.sendall(data)
        except OSError:  # it was refused; the answer may be lost with what was under way
            pass

    for client in clients:
        send(client, head.encode() + body[:-100])
    for client in clients:
        send(client, body[-100:])
        try:
            answers.append(client.makefile("rb").read())
        except OSError:
            answers.append(b"")
        client.close()
    for a in answers:
        assert not a or a.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400", b"HTTP/1.1 503")), a[:200]
    assert any(not a or a.startswith(b"HTTP/1.1 503") for a in answers), answers
    still_serves(server)


def resident(server):
    with open(f"/proc/{server.process.pid}/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize() >> 20


def test_a_large_body_leaves_nothing(start_server):
    """Millions of small values, of which the last to be freed may hold all the others' pages."""
    server = start_server()
    server.request("POST", "/v1/completions", SMALL)
    before = resident(server)
    body = b'{"content":[' + b",".join([b'{"":{}}'] * 500_000) + b"]}"
    assert server.request("POST", "/tokenize", body)[0] == 400
    end = time.monotonic() + 30
    while resident(server) > before + 60:
        assert time.monotonic() < end, (before, resident(server))
        time.sleep(0.1)


def mappings(server):
    """-> name, fields of each part of its memory, as /proc has them."""
    found = []
    with open(f"/proc/{server.process.pid}/smaps") as f:
        for line in f:
            words = line.split()
            if not words[0].endswith(":"):
                found.append((" ".join(words[5:]), {}))
            else:
                found[-1][1][words[0][:-1]] = words[1:]
    return found


def test_weights_are_held_once(start_server):
    """In panels, which lie in huge pages where the system has them; the file's own pages are let go."""
    server = start_server()
    parts = mappings(server)
    file = [int(fields["Rss"][0]) for name, fields in parts if name == os.path.realpath(MODEL)]
    assert file and sum(file) < os.path.getsize(MODEL) / 1024 / 4
    if os.path.exists("/sys/kernel/mm/transparent_hugepage"):
        assert any(int(fields["Size"][0]) >= 2048 and "hg" in fields["VmFlags"] for _, fields in parts)
