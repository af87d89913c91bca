"""The examples of the documentation run as they stand: curl, Python, and files."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Server

ROOT = Path(__file__).resolve().parents[2]


def blocks(document):
    """Indented blocks, without their indentation; one ends at a line that is not indented."""
    lines, found = [], []
    for line in (ROOT / document).read_text().splitlines() + ["end"]:
        if line.startswith("    ") or (not line and lines):
            lines.append(line[4:])
        else:
            found.append("\n".join(lines).strip("\n"))
            lines = []
    return [b for b in found if b]


def of(document, *starts):
    """Paragraphs of blocks that begin so; Python goes on over empty lines."""
    found = []
    for b in blocks(document):
        if b.startswith(starts) and b.startswith(("from ", "import ")):
            found.append(b)
        elif not b.startswith(("from ", "import ")):
            found += [p for p in b.split("\n\n") if p.startswith(starts)]
    return found


CURLS = [b for d in ("README.md", "docs/API.md") for b in of(d, "curl ", "api=")]
PYTHONS = [b for d in ("README.md", "docs/API.md") for b in of(d, "from ", "import ")]


def test_there_are_some():
    assert len(CURLS) >= 10 and len(PYTHONS) >= 2


@pytest.fixture(scope="module")
def whole_server(tmp_path_factory):
    """With a folder for files and batches: every route answers."""
    s = Server("--batch-dir", tmp_path_factory.mktemp("batches")).wait_ready()
    yield s
    s.stop()


@pytest.mark.parametrize("script", CURLS, ids=range(len(CURLS)))
def test_curl(whole_server, script):
    server = whole_server
    script = script.replace("http://127.0.0.1:8080", server.url)
    script = "set -o pipefail; " + script.replace("curl ", "curl -sS --fail ")
    r = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=300)
    assert r.returncode == 0 and r.stdout, (script, r.stderr)


LINE = b"GET /health HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("head, status", [
    (b"garbage\r\n\r\n", None), (b"GET /health\r\n\r\n", 400), (b"GET /health HTTP/1.10\r\nHost: x\r\n\r\n", 400),
    (b"a b c\r\n\r\n", 400), (LINE + b"no colon\r\n\r\n", 400), (LINE + b"Content-Length: x\r\n\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (LINE + b"Content-Length: 99999999999999999999999\r\n\r\n", 413), (b"GET /" + 90000 * b"a" + b" HTTP/1.1\r\n\r\n", 414),
    (LINE + b"X: " + 90000 * b"a" + b"\r\n\r\n", 431), (LINE + 1300 * b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" + b"\r\n", 431),
    (b"GET /health HTTP/0.9\r\n\r\n", 505), (b"GET /health HTTP/2.0\r\n\r\n", 505)])
def test_what_the_http_library_refuses(server, head, status):
    """As the page's table has it, and without what Weir's own answers have."""
    text = (ROOT / "docs/API.md").read_text().split("What the HTTP library")[1].split("## Metrics")[0]
    rows = re.findall(r"^\| ([\d, ]+|none)\b.* \| .* \|$", text, re.M)
    assert str(status or "none") in ", ".join(rows)
    with socket.create_connection(server.url.removeprefix("http://").split(":"), timeout=300) as s:
        s.sendall(head)
        answer = b""
        while piece := s.recv(65536):
            answer += piece
    assert answer == b"" if status is None else answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"X-Request-Id" not in answer


VARIES = {"id", "created", "created_at", "prompt_ms"}


def same(shown, got):
    """Whether all that an example shows is so, but for clocks and made-up names."""
    if isinstance(shown, dict):
        return all(k in got and (k in VARIES or same(v, got[k])) for k, v in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(got) and all(map(same, shown, got))
    return shown == got


QUESTION = {"messages": [{"role": "user", "content": "What is the capital of France?"}],
            "temperature": 0, "max_tokens": 32}


@pytest.mark.parametrize("start, path, body", [
    ('{"object": "list", "data": [{"id": "weir-nano"', "/v1/models", None),
    ('{"id": "chatcmpl-', "/v1/chat/completions", QUESTION),
    ('{"id": "msg_', "/v1/messages", QUESTION)])
def test_what_the_built_in_model_answers(start_server, start, path, body):
    [text] = of("docs/API.md", start)
    shown = json.loads(text.replace(", ...", ""))
    server = start_server()
    for _ in range(2 if "msg_" in start else 1):  # that example's prompt is found
        got = server.json("POST" if body else "GET", path, body)
    assert same(shown, got), got


@pytest.mark.parametrize("script", PYTHONS, ids=range(len(PYTHONS)))
def test_python(server, script):
    if "openai" in script:
        pytest.importorskip("openai", reason="the OpenAI client is not installed")
    script = script.replace("http://127.0.0.1:8080", server.url)
    r = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert r.returncode == 0 and r.stdout, (script, r.stderr)


def test_the_keys_file(start_server, tmp_path):
    [text] = of("docs/API.md", '{"keys"')
    file = tmp_path / "keys.json"
    file.write_text(text)
    server = start_server("--api-keys", file)
    for key in ("sk-alice-0123456789", "sk-batch-0123456789", "sk-ops-0123456789"):
        server.json("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})


def test_the_log_line_has_the_fields(start_server, tmp_path):
    [text] = of("docs/API.md", '{"time"')
    log = tmp_path / "log"
    server = start_server("--access-log", log)
    server.json("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 3})
    server.stop()
    line = json.loads(log.read_text().splitlines()[-1])
    assert list(line) == list(json.loads(text))


def test_the_certificate(start_server, tmp_path):
    import ssl
    [command] = of("docs/API.md", "openssl ")
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, check=True, capture_output=True)
    server = start_server("--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem",
                          context=ssl._create_unverified_context())
    assert server.request("GET", "/health")[0] == 200


def test_every_flag_of_the_documentation_exists():
    from conftest import WEIR
    text = subprocess.run([WEIR, "serve", "--help"], capture_output=True, text=True).stdout
    flags = set(re.findall(r"`(--[a-z][a-z-]+)", (ROOT / "docs/API.md").read_text()))
    others = {"--bad"}  # of weir cache
    assert len(flags) > 12 and not [f for f in flags - others if not re.search(f + r"[=\s\[]", text)]


def test_every_metric_is_listed_as_it_is(start_server, tmp_path):
    """Both ways: names, types and labels. Those of a GPU, which only a server on one has, are looked up elsewhere."""
    text = (ROOT / "docs/API.md").read_text().split("\n## Metrics\n")[1]
    listed = {}
    for names, kinds in re.findall(r"^\| (`(?:weir_|llamacpp:)[^|]*) \| ([a-z, ]+) \|", text, re.M):
        for name, labels in re.findall(r"`([\w:]+)(?:\{([\w,]+)\})?`", names):
            listed[name] = kinds.split(", "), set(labels.split(",")) - {""}
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": [{"name": "a", "key": "sk-a"}]}')
    keys.chmod(0o600)
    server = start_server("--host-cache", "16M", "--cache-dir", tmp_path / "cache", "--api-keys", keys)
    server.json("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 3}, headers={"X-Api-Key": "sk-a"})
    got = server.request("GET", "/metrics", headers={"X-Api-Key": "sk-a"})[2].decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)", got, re.M))
    of_gpus = {n for n in listed if n.startswith("weir_gpu_") and n != "weir_gpu_active"}
    assert set(types) == set(listed) - of_gpus and len(types) > 80
    for name, kind in types.items():
        kinds, labels = listed[name]
        assert kind in kinds, name
        of_samples = re.findall(rf"^{name}(?:_sum|_count)?(?:\{{(.*)\}})? ", got, re.M)
        assert {tuple(sorted(re.findall(r'(\w+)="', s))) for s in of_samples} == {tuple(sorted(labels))}, name
