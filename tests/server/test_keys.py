"""Who may: keys with limits, the administrator's key, and reading them again."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import WEIR

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ASK = {"prompt": "Once there was a", "max_tokens": 4, "temperature": 0, "ignore_eos": True}


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def write_keys(path, *keys):
    path.write_text(json.dumps({"keys": list(keys)}))
    path.chmod(0o600)
    return path


@pytest.fixture
def keys_file(tmp_path):
    return tmp_path / "keys.json"


def ask(server, key, status=200, **more):
    got, headers, data = server.request("POST", COMPLETIONS, {**ASK, **more}, bearer(key))
    assert got == status, data
    return headers, json.loads(data)


def n_tokens(server, key, text):
    return server.json("POST", COMPLETIONS, {**ASK, "prompt": text, "max_tokens": 1},
                       headers=bearer(key))["usage"]["prompt_tokens"]


def test_strangers_send_no_large_bodies(start_server, keys_file):
    """Not more than their first 64 KiB: bodies come before a worker asks whose they are, and share 1 GiB."""
    write_keys(keys_file, {"name": "alice", "key": "alices-key"})
    admin = keys_file.with_name("admin")
    admin.write_text("root-key\n")
    admin.chmod(0o600)
    server = start_server("--api-keys", keys_file, "--admin-key-file", admin)

    def n_refused():
        text = server.request("GET", "/metrics", headers=bearer("root-key"))[2].decode()
        return int(re.search(r'weir_http_requests_total{status="401"} (\d+)|$', text).group(1) or 0)

    def begin(path, key, n_bytes):
        s = socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), timeout=300)
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
                  f"Content-Length: 1000000\r\n\r\n".encode() + b" " * n_bytes)
        return s

    refused = n_refused()
    for path in (COMPLETIONS, "/health", "/nothing", "/v1/files"):
        with begin(path, "carols-key", 70_000) as s:
            head, body = s.recv(65536).split(b"\r\n\r\n", 1)
        assert b" 401 " in head and b"WWW-Authenticate: Bearer" in head
        assert json.loads(body)["error"]["code"] == "invalid_api_key"
    with begin("/props", "alices-key", 70_000) as s:
        assert b" 403 " in s.recv(65536)
    assert n_refused() == refused + 4
    with begin(COMPLETIONS, "carols-key", 60_000) as small, begin(COMPLETIONS, "alices-key", 900_000) as known:
        for s in (small, known):
            with pytest.raises(TimeoutError):
                s.settimeout(0.3)
                s.recv(1)
        known.settimeout(300)
        known.sendall(b" " * 100_000)
        assert b" 400 " in known.recv(65536)


def test_who_is_let_in(start_server, keys_file):
    digest = hashlib.sha256(b"bobs-key").hexdigest()
    write_keys(keys_file, {"name": "alice", "key": "alices-key"},
               {"name": "bob", "sha256": digest})
    server = start_server("--api-keys", keys_file)
    ask(server, "alices-key")
    ask(server, "bobs-key")
    assert server.request("GET", "/v1/models", headers={"x-api-key": "bobs-key"})[0] == 200
    assert server.request("GET", "/v1/models", headers={"authorization": "bearer   bobs-key"})[0] == 200
    assert server.request("GET", "/health")[0] == 200
    for headers in ({}, bearer("carols-key"), bearer(digest), bearer(""), {"x-api-key": "x"},
                    {"Authorization": "Basic YTpi"}, {"Authorization": "bobs-key"}):
        status, answer, data = server.request("GET", "/v1/models", headers=headers)
        assert status == 401 and answer["WWW-Authenticate"] == "Bearer"
        assert json.loads(data)["error"]["code"] == "invalid_api_key"
    # a path that is not there tells strangers nothing
    assert server.request("GET", "/nothing")[0] == 401
    assert server.request("GET", "/nothing", headers=bearer("bobs-key"))[0] == 404


def test_a_single_key_as_before(start_server):
    server = start_server("--api-key", "secret")
    headers, _ = ask(server, "secret", priority=100)
    assert not any(h.lower().startswith("x-ratelimit") for h in headers)
    ask(server, "other", 401)


def test_requests_a_minute(start_server, keys_file):
    """A minute's worth at once, and then one every twenty seconds: the next is far away."""
    write_keys(keys_file, {"name": "a", "key": "ka", "requests_per_minute": 3},
               {"name": "b", "key": "kb"})
    server = start_server("--api-keys", keys_file)
    for left in ("2", "1", "0"):
        headers, _ = ask(server, "ka")
        assert headers["x-ratelimit-limit-requests"] == "3"
        assert headers["x-ratelimit-remaining-requests"] == left
        assert re.fullmatch(r"\d+\.\d\d\ds", headers["x-ratelimit-reset-requests"])
        assert headers["x-ratelimit-limit-tokens"] is None
    headers, error = ask(server, "ka", 429)
    assert error["error"]["code"] == "rate_limit_exceeded"
    assert error["error"]["type"] == "rate_limit_error"
    assert 1 <= int(headers["Retry-After"]) <= 20
    assert headers["x-ratelimit-remaining-requests"] == "0"
    server.json("GET", "/v1/models", headers=bearer("ka"))  # looking does not count
    ask(server, "kb")
    text = server.request("GET", "/metrics", headers=bearer("kb"))[2].decode()
    assert 'weir_key_requests_total{key="a"} 3\n' in text
    assert 'weir_key_refused_total{key="a",limit="requests"} 1\n' in text
    assert 'weir_key_requests_total{key="b"} 1\n' in text


def test_tokens_a_minute(start_server, keys_file):
    """Prompts count when they come, answers when they are there, cached tokens like others."""
    write_keys(keys_file, {"name": "a", "key": "ka", "tokens_per_minute": 40},
               {"name": "b", "key": "kb"})
    server = start_server("--api-keys", keys_file)
    n = n_tokens(server, "kb", ASK["prompt"])
    assert 2 <= n <= 8
    headers, _ = ask(server, "ka", max_tokens=30, n=2)
    assert headers["x-ratelimit-limit-tokens"] == "40"
    assert headers["x-ratelimit-remaining-tokens"] == str(40 - n)
    # 60 generated: 20 + n below nothing, which takes half a minute to come back from
    headers, error = ask(server, "ka", 429)
    assert headers["x-ratelimit-remaining-tokens"] == "0"
    assert 20 <= int(headers["Retry-After"]) <= 60
    assert error["error"]["code"] == "rate_limit_exceeded"
    # more than a minute's worth never fits: that is not a matter of waiting
    headers, error = ask(server, "ka", 413, prompt=[1] * 41)
    assert headers["Retry-After"] is None and "41" in error["error"]["message"]
    text = server.request("GET", "/metrics", headers=bearer("kb"))[2].decode()
    assert f'weir_key_prompt_tokens_total{{key="a"}} {n}\n' in text
    of_keys = re.findall(r"^weir_key_prompt_tokens_total\S+ (\d+)$", text, re.M)
    assert f"weir_prompt_tokens_total {sum(map(int, of_keys))}\n" in text
    assert 'weir_key_generation_tokens_total{key="a"} 60\n' in text
    assert 'weir_key_refused_total{key="a",limit="tokens"} 2\n' in text
    assert 'weir_key_requests_running{key="a"} 0\n' in text
    assert 'weir_key_requests_total{key="a"} 1\n' in text  # neither of those that were refused


def test_refused_and_failed_requests_take_no_tokens(start_server, keys_file):
    write_keys(keys_file, {"name": "a", "key": "ka", "tokens_per_minute": 1000})
    server = start_server("--api-keys", keys_file)
    ask(server, "ka", 400, temperature=9)
    ask(server, "ka", 400, prompt=[1] * 900, max_tokens=1000000)
    headers, _ = ask(server, "ka", prompt=[5] * 10)
    assert headers["x-ratelimit-remaining-tokens"] == "990"


def test_concurrency(start_server, keys_file):
    write_keys(keys_file, {"name": "a", "key": "ka", "concurrency": 1}, {"name": "b", "key": "kb"})
    server = start_server("--api-keys", keys_file)
    import http.client
    host = server.url.split("//")[1]


    def begin(**more):
        c = http.client.HTTPConnection(host, timeout=300)
        c.request("POST", COMPLETIONS, json.dumps({**ASK, "stream": True, **more}), bearer("ka"))
        r = c.getresponse()
        assert r.status == 200 and r.readline().startswith(b"data: ")
        return c, r

    c, r = begin()
    assert r.read().endswith(b"data: [DONE]\n\n")
    ask(server, "ka")  # the place is free as soon as the end is read
    ask(server, "ka", 400, temperature=9)
    ask(server, "ka")
    c.close()
    c, r = begin(n=100, max_tokens=2000)  # a minute's work
    headers, error = ask(server, "ka", 429)
    assert int(headers["Retry-After"]) >= 1 and "at once" in error["error"]["message"]
    ask(server, "kb")
    # one that leaves gives its place back too
    r.close()
    c.close()
    wait = threading.Event()
    for _ in range(600):
        if server.request("POST", COMPLETIONS, ASK, bearer("ka"))[0] == 200:
            break
        wait.wait(0.05)
    else:
        pytest.fail("the place of one that left is not free")


def test_priority_is_bounded(start_server, keys_file):
    write_keys(keys_file, {"name": "low", "key": "kl", "priority": -5},
               {"name": "high", "key": "kh", "priority": 50}, {"name": "plain", "key": "kp"})
    server = start_server("--api-keys", keys_file)
    for key, top in (("kl", -5), ("kh", 50), ("kp", 0)):
        ask(server, key)
        ask(server, key, priority=top)
        ask(server, key, priority=top - 1)
        _, error = ask(server, key, 403, priority=top + 1)
        assert error["error"]["param"] == "priority"
        assert error["error"]["type"] == "permission_error"
        ask(server, key, 400, priority=101)


def test_salts_keep_caches_apart(start_server, keys_file):
    write_keys(keys_file, {"name": "a", "key": "ka", "cache_salt": "red"},
               {"name": "a2", "key": "ka2", "cache_salt": "red"},
               {"name": "b", "key": "kb", "cache_salt": "blue"},
               {"name": "c", "key": "kc"})
    server = start_server("--api-keys", keys_file)
    prompt = list(range(100, 164))

    def cached(key, **more):
        _, answer = ask(server, key, prompt=prompt, **more)
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached("ka") == 0
    assert cached("ka") == 63
    assert cached("ka2") == 63  # the same salt
    assert cached("kb") == 0
    assert cached("kc") == 0  # no salt is its own
    assert cached("kc", cache_salt="red") == 0  # and a client's is another than a key's
    assert cached("ka", cache_salt="x") == 0  # within the key's, a client's own
    assert cached("ka2", cache_salt="x") == 63
    assert cached("kb", cache_salt="x") == 0


def test_admin_key(start_server, keys_file, tmp_path):
    admin = tmp_path / "admin"
    admin.write_text("root-key\nsecond line\n")
    admin.chmod(0o600)
    write_keys(keys_file, {"name": "a", "key": "ka"}, {"name": "ops", "key": "ko", "admin": True})
    server = start_server("--api-keys", keys_file, "--admin-key-file", admin)

    def status(path, key=None):
        return server.request("GET", path, headers=bearer(key) if key else {})[0]

    for path in ("/metrics", "/v1/kv"):
        assert [status(path, k) for k in ("root-key", "ko", "ka", "no", None)] == \
            [200, 200, 403, 401, 401]
    assert [status("/v1/models", k) for k in ("root-key", "ko", "ka", "no", None)] == \
        [403, 200, 200, 401, 401]
    got, headers, data = server.request("GET", "/metrics", headers=bearer("ka"))
    assert json.loads(data)["error"]["code"] == "forbidden"
    admin.write_text("new-key\n")
    assert "reload: admin-key-file\n" in server.reload()
    server.wait_log("reload: admin-key-file")
    assert status("/metrics", "root-key") == 401 and status("/metrics", "new-key") == 200


def test_admin_key_on_an_open_server(start_server, tmp_path):
    admin = tmp_path / "admin"
    admin.write_text("root-key")
    server = start_server("--admin-key-file", admin)
    assert "others on this machine" in server.log  # a new file is readable by all
    server.json("POST", COMPLETIONS, ASK)
    assert server.request("GET", "/v1/kv")[0] == 401
    assert server.request("GET", "/v1/kv", headers=bearer("root-key"))[0] == 200


def test_reload(start_server, keys_file):
    """Names keep what they have used; those left out are closed; a broken file changes nothing."""
    write_keys(keys_file, {"name": "a", "key": "ka", "requests_per_minute": 2},
               {"name": "b", "key": "kb"})
    server = start_server("--api-keys", keys_file)
    ask(server, "ka")
    write_keys(keys_file, {"name": "a", "key": "ka2", "requests_per_minute": 3},
               {"name": "c", "key": "kc"})
    keys_file.write_bytes(b"\xef\xbb\xbf" + keys_file.read_bytes())  # as editors of Windows save it
    assert "reload: api-keys\n" in server.reload()
    ask(server, "ka", 401)
    ask(server, "kb", 401)
    ask(server, "kc")
    headers, _ = ask(server, "ka2")
    assert headers["x-ratelimit-limit-requests"] == "3"
    assert headers["x-ratelimit-remaining-requests"] == "1"  # of three, one before and one now
    for broken in ("", "{", '{"keys": 1}', '{"keys": [{"name": "x", "key": "y", "limit": 1}]}',
                   '{"keys": [{"name": "c", "key": "k1"}, {"name": "c", "key": "k2"}]}'):
        keys_file.write_text(broken)
        lines = server.reload()
        assert lines.count("\n") == 1 and "error: reload: api-keys" in lines, lines
        assert "stays" in lines
        ask(server, "kc")
    keys_file.unlink()
    assert "error: reload: api-keys" in server.reload()
    os.mkfifo(keys_file)  # nobody writes to it: who hears of signals must not wait for that
    assert "error: reload: api-keys" in server.reload()
    ask(server, "kc")
    text = server.request("GET", "/metrics", headers=bearer("kc"))[2].decode()
    assert 'weir_key_requests_total{key="a"} 2\n' in text  # across keys and limits
    assert 'weir_key_requests_total{key="b"} 0\n' in text  # closed, not forgotten


def test_keys_from_a_pipe(keys_file):
    """They are read once, at start; until then a server that is told to end ends."""
    os.mkfifo(keys_file)
    with subprocess.Popen([WEIR, "serve", "--port", "0", "--api-keys", keys_file], stderr=subprocess.PIPE) as p:
        deadline, fd = time.monotonic() + 60, None
        while fd is None and time.monotonic() < deadline:
            try:
                fd = os.open(keys_file, os.O_WRONLY | os.O_NONBLOCK)  # once it is being read
            except OSError:
                time.sleep(0.02)
        p.terminate()
        assert p.wait(300) == -signal.SIGTERM and fd is not None
        os.close(fd)
    with subprocess.Popen([WEIR, "serve", "--port", "0", "--api-keys", keys_file], stderr=subprocess.PIPE) as p:
        write_keys(keys_file, {"name": "a", "key": "ka"})
        assert any(b"listening" in line for line in p.stderr)
        p.terminate()
        assert p.wait(300) == 0


def test_reload_under_traffic(start_server, keys_file):
    """Requests go on while the file changes fifty times; the key that stays is never refused."""
    write_keys(keys_file, {"name": "stays", "key": "ks"})
    server = start_server("--api-keys", keys_file)
    stop, problems, n_done = threading.Event(), [], [0]

    def client():
        while not stop.is_set():
            status, _, data = server.request("POST", COMPLETIONS, ASK, bearer("ks"))
            n_done[0] += 1
            if status != 200:
                problems.append((status, data))

    threads = [threading.Thread(target=client) for _ in range(4)]
    for t in threads:
        t.start()
    for i in range(50):
        write_keys(keys_file, {"name": "stays", "key": "ks", "concurrency": 100 + i},
                   *({"name": f"other{j}", "key": f"k{i}-{j}"} for j in range(i)))
        server.reload()
    stop.set()
    for t in threads:
        t.join()
    assert not problems and n_done[0] > 0
    text = server.request("GET", "/metrics", headers=bearer("ks"))[2].decode()
    assert f'weir_key_requests_total{{key="stays"}} {n_done[0]}\n' in text
    assert 'weir_key_requests_running{key="stays"} 0\n' in text


@pytest.mark.parametrize("text, says", [
    ("{", "line 1"),
    ("[]", '{"keys": [...]}'),
    ('{"keys": [{"name": "a"}]}', "either 'key' or 'sha256'"),
    ('{"keys": [{"name": "a", "key": "x", "sha256": "y"}]}', "either 'key' or 'sha256'"),
    ('{"keys": [{"name": "a", "sha256": "abc"}]}', "64 hexadecimal"),
    ('{"keys": [{"name": "a b", "key": "x"}]}', "'name'"),
    ('{"keys": [{"key": "x"}]}', "'name'"),
    ('{"keys": [{"name": "a", "key": "x y"}]}', "without blanks"),
    ('{"keys": [{"name": "a", "key": "x", "priority": 101}]}', "'priority'"),
    ('{"keys": [{"name": "a", "key": "x", "requests_per_minute": 0}]}', "'requests_per_minute'"),
    ('{"keys": [{"name": "a", "key": "x"}, {"name": "b", "key": "x"}]}', "the same key"),
    ('{"keys": [{"name": "a", "name": "b", "key": "x"}]}', "duplicate"),
    ('{"keys": [7]}', "keys[0]"),
])
def test_a_bad_file_is_one_line_at_start(keys_file, text, says):
    import subprocess

    from conftest import MODEL, WEIR

    keys_file.write_text(text)
    r = subprocess.run([WEIR, "serve", "-m", MODEL, "--port", "0", "--api-keys", keys_file],
                       capture_output=True, text=True, timeout=300)
    lines = [line for line in r.stderr.splitlines() if "warning" not in line]
    assert r.returncode == 1 and len(lines) == 1 and says in lines[0], r.stderr
    assert str(keys_file) in lines[0]
