"""What is written down: access log, slow log, timelines, trace contexts; and what never is."""

import datetime
import http.client
import json
import os
import signal
import socket
import struct
import time

import pytest

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
SECRET = "xylophone"
ASK = {"prompt": f"Once there was a {SECRET}", "max_tokens": 8, "temperature": 0,
       "ignore_eos": True}
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def lines_of(path):
    """The whole lines so far, but for those of /health, which the fixture asks."""
    lines = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    return [line for line in lines if line["route"] != "/health"]


def wait_lines(path, n):
    end = time.monotonic() + 30
    while len(lines_of(path)) < n:
        assert time.monotonic() < end, path.read_text()
        time.sleep(0.01)
    assert len(lines_of(path)) == n
    return lines_of(path)


def test_access_log(start_server, tmp_path):
    log, keys = tmp_path / "access.log", tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "alice", "key": "the-key-itself"}]}))
    server = start_server("--access-log", log, "--api-keys", keys)
    auth = {"Authorization": "Bearer the-key-itself"}
    before = datetime.datetime.now(datetime.timezone.utc)
    server.request("POST", COMPLETIONS, ASK, {**auth, "X-Request-Id": "mine", "traceparent": PARENT})
    a = wait_lines(log, 1)[-1]
    server.request("POST", COMPLETIONS, {**ASK, "stream": True, "n": 2}, auth)
    b = wait_lines(log, 2)[-1]
    server.request("POST", CHAT, {"messages": SECRET}, auth)
    c = wait_lines(log, 3)[-1]
    server.request("GET", f"/{SECRET}?{SECRET}", headers=auth)
    d = wait_lines(log, 4)[-1]
    server.request("GET", "/v1/models/" + SECRET, headers={"Authorization": f"Bearer {SECRET}"})
    e = wait_lines(log, 5)[-1]

    when = datetime.datetime.fromisoformat(a["time"].replace("Z", "+00:00"))
    assert abs((when - before).total_seconds()) < 60
    assert a["id"].startswith("cmpl-") and a["request_id"] == "mine" and a["trace_id"] == TRACE
    assert a["client"].startswith("127.0.0.1:") and a["key"] == "alice"
    assert (a["method"], a["route"], a["status"]) == ("POST", COMPLETIONS, 200)
    assert a["stream"] is False and a["complete"] is True and a["finish"] == "length"
    assert a["prompt_tokens"] >= 4 and a["completion_tokens"] == 8 and a["cached_tokens"] == 0
    assert a["bytes_in"] == len(json.dumps(ASK)) and a["bytes_out"] > 100
    assert 0 <= a["admitted_ms"] <= a["first_token_ms"] <= a["total_ms"]
    assert "timeline" not in a
    assert b["stream"] is True and b["choices"] == 2 and b["completion_tokens"] == 16
    assert b["prompt_tokens"] == a["prompt_tokens"] and b["cached_tokens"] > 0
    assert b["trace_id"] is None and b["request_id"] is None
    assert (c["route"], c["status"]) == (CHAT, 400) and "finish" not in c
    assert (d["route"], d["status"], d["key"]) == (None, 404, "alice")
    assert (e["route"], e["status"], e["key"]) == ("/v1/models/", 401, None)
    assert SECRET not in log.read_text() and "the-key-itself" not in log.read_text()
    assert SECRET not in server.log


def test_those_who_never_became_calls(start_server, tmp_path):
    log = tmp_path / "access.log"
    server = start_server("--access-log", log, "--max-body", "1K")
    assert server.request("POST", COMPLETIONS, b"x" * 2000)[0] == 413
    line = wait_lines(log, 1)[-1]
    assert line["status"] == 413 and line["route"] is None
    assert line["client"].startswith("127.0.0.1:")
    refused = {413: b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                    b"800\r\n" + b"x" * 2048,
               414: b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
               431: b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 40_000 + b"\r\n\r\n",
               400: b"GET / HTTP/1.1\r\n\r\n",
               501: b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n"}
    host, port = server.url.removeprefix("http://").split(":")
    for status, request in refused.items():
        with socket.create_connection((host, int(port)), 60) as s:
            s.sendall(request)
            assert int(s.recv(4096).split()[1]) == status
    lines = wait_lines(log, 1 + len(refused))
    for status in refused:  # counted as often as logged
        n = sum(line["status"] == status for line in lines)
        assert n == (2 if status == 413 else 1)
        assert server.metric(f'weir_http_requests_total{{status="{status}"}}') == n


def test_a_client_that_leaves(start_server, tmp_path):
    log = tmp_path / "access.log"
    server = start_server("--access-log", log)
    c = http.client.HTTPConnection(server.url.split("//")[1], timeout=300)
    c.request("POST", COMPLETIONS, json.dumps({**ASK, "n": 50, "max_tokens": 2000, "stream": True}))
    r = c.getresponse()
    assert r.readline().startswith(b"data: ")
    r.close()
    c.close()
    line = wait_lines(log, 1)[-1]
    assert line["status"] == 200 and line["complete"] is False and line["finish"] == "abort"
    assert 0 < line["completion_tokens"] < 50 * 2000


def test_a_client_that_leaves_amid_an_answer_that_is_ready(start_server, tmp_path):
    """It was made to its end, but the client has not got it."""
    log = tmp_path / "access.log"
    server = start_server("--access-log", log)
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({**ASK, "max_tokens": 400, "logprobs": 20, "n": 16}).encode()
    request = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (COMPLETIONS.encode(), len(body))
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect((host, int(port)))
    s.sendall(request + body)
    assert s.recv(100).startswith(b"HTTP/1.1 200")
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
    line = wait_lines(log, 1)[-1]
    assert line["status"] == 200 and line["finish"] == "length" and line["complete"] is False
    server.request("HEAD", "/v1/models")
    line = wait_lines(log, 2)[-1]
    assert (line["method"], line["status"], line["complete"], line["bytes_out"]) == ("HEAD", 200, True, 0)


def test_clients_that_leave_before_their_turn(start_server, tmp_path):
    """A line for each whole request, also where its client has gone while it waited for a worker."""
    log, n = tmp_path / "access.log", 60
    server = start_server("--access-log", log)
    gone = server.metric("weir_http_clients_gone_total")
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"content": "a b c " * 10_000}).encode()
    request = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    for _ in range(n):
        with socket.create_connection((host, int(port)), 60) as s:
            s.sendall(request + body)
    lines = [line for line in wait_lines(log, n + 1) if line["route"] == "/tokenize"]  # one of /metrics
    assert len(lines) == n and all(line["bytes_in"] == len(body) for line in lines)
    left = [line for line in lines if line["status"] is None]
    assert left and not any(line["complete"] for line in left)
    n_gone = gone + sum(not line["complete"] for line in lines)
    end = time.monotonic() + 60
    while server.metric("weir_http_clients_gone_total") != n_gone:
        assert time.monotonic() < end


def test_the_log_is_opened_again(start_server, tmp_path):
    log, moved = tmp_path / "access.log", tmp_path / "access.log.1"
    server = start_server("--access-log", log)
    server.request("POST", COMPLETIONS, ASK)
    wait_lines(log, 1)
    log.rename(moved)
    server.request("POST", COMPLETIONS, ASK)
    wait_lines(moved, 2)
    server.reload()
    end = time.monotonic() + 30
    while not log.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    server.request("POST", COMPLETIONS, ASK)
    server.stop()
    assert len(lines_of(moved)) == 2 and len(lines_of(log)) == 1


def test_a_log_that_nobody_reads_holds_up_nobody(start_server, tmp_path):
    """A pipe that is full: requests go on, lines are dropped and counted at last."""
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    server = start_server("--access-log", fifo)
    for _ in range(400):  # more than a pipe holds
        assert server.request("GET", "/v1/models", headers={"X-Request-Id": "x" * 128})[0] == 200
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(300) == 0
    os.close(reader)


def test_sighup_ends_a_server_without_files(start_server):
    server = start_server()
    server.process.send_signal(signal.SIGHUP)
    assert server.process.wait(300) == -signal.SIGHUP


# ---- timelines ------------------------------------------------------------------------------


def check_events(choice, finish):
    names = [e["event"] for e in choice["events"]]
    times = [e["ms"] for e in choice["events"]]
    assert times == sorted(times) and times[0] >= 0
    assert names[0] == "queued" and names[-1] == "done"
    assert choice["events"][-1]["reason"] == finish
    assert choice["omitted"] == 0
    return names


def test_timeline_of_an_answer(server):
    answer = server.json("POST", COMPLETIONS, {**ASK, "timeline": True, "n": 2})
    assert [c["index"] for c in answer["timeline"]["choices"]] == [0, 1]
    for c in answer["timeline"]["choices"]:
        names = check_events(c, "length")
        assert names[1] == "admitted" and names.count("first_token") == 1
        admitted = c["events"][1]["tokens"]
        computed = sum(e["tokens"] for e in c["events"] if e["event"] == "prefill")
        assert admitted + computed >= answer["usage"]["prompt_tokens"]
    assert "timeline" not in server.json("POST", COMPLETIONS, ASK)
    assert "timeline" not in server.json("POST", COMPLETIONS, {**ASK, "timeline": False})
    server.json("POST", COMPLETIONS, {**ASK, "timeline": 1}, status=400)


@pytest.mark.parametrize("usage", [False, True])
def test_timeline_of_a_stream(server, usage):
    body = {"messages": [{"role": "user", "content": "What is 2 + 3?"}], "timeline": True,
            "max_tokens": 5, "stream_options": {"include_usage": usage}}
    events = server.events(CHAT, body)
    assert ["timeline" in e for e in events] == [False] * (len(events) - 1) + [True]
    last = events[-1]
    assert last["choices"] == [] and (last.get("usage") is not None) == usage
    check_events(last["timeline"]["choices"][0], events[-2]["choices"][0]["finish_reason"])


SAY = [{"role": "user", "content": "What is 2 + 3?"}]
DIALECTS = [
    ("/v1/messages", {"messages": SAY, "max_tokens": 5}),
    ("/v1/responses", {"input": "What is 2 + 3?", "max_output_tokens": 5}),
    ("/completion", {"prompt": "What is", "n_predict": 5, "ignore_eos": True}),
    ("/generate", {"prompt": "What is", "max_tokens": 5}),
    ("/batch/generate", {"prompts": ["What", "is"], "max_tokens": 5}),
    ("/v1/batch/completions", {"prompts": ["What", "is"], "max_tokens": 5}),
    ("/v1/embeddings", {"input": ["What", "is"]}),
]


@pytest.mark.parametrize("path, body", DIALECTS, ids=[p for p, _ in DIALECTS])
def test_timeline_of_every_dialect(server, path, body):
    answer = server.json("POST", path, {**body, "timeline": True})
    choices = answer["timeline"]["choices"]
    several = body.get("prompts") or path == "/v1/embeddings"
    assert [c["index"] for c in choices] == [0, 1][:2 if several else 1]
    for c in choices:
        names = check_events(c, c["events"][-1]["reason"])
        assert names[1] == "admitted" and ("first_token" in names) is (path != "/v1/embeddings")
        assert c["events"][-1]["reason"] in ("stop", "length")
    assert "timeline" not in server.json("POST", path, body)
    status, _, data = server.request("POST", path, {**body, "timeline": "yes"})
    assert status in (400, 422) and b"timeline" in data


def test_timelines_of_arrays(server):
    """What has no place for one of all tells each answer's own."""
    answers = server.json("POST", "/completion", {"prompt": ["What", "is"], "n_predict": 3, "timeline": True})
    vectors = server.json("POST", "/embedding", {"content": ["What", "is"], "timeline": True})
    for i, one in [*enumerate(answers), *enumerate(vectors)]:
        (choice,) = one["timeline"]["choices"]
        assert choice["index"] == i
        check_events(choice, choice["events"][-1]["reason"])
    chosen = server.json("POST", "/completion", {"prompt": "What", "n_predict": 3, "timeline": True,
                                                 "response_fields": ["content", "timeline/choices"]})
    assert set(chosen) == {"content", "timeline/choices"}


@pytest.mark.parametrize("path, body, at", [
    ("/v1/messages", {"messages": SAY, "max_tokens": 5}, "message_delta"),
    ("/v1/responses", {"input": "What is 2 + 3?", "max_output_tokens": 64}, "response.completed"),
    ("/completion", {"prompt": ["What", "is"], "n_predict": 5}, None),
    ("/stream/generate", {"prompt": "What is", "max_tokens": 5}, "done")])
def test_timeline_of_streams(server, path, body, at):
    if path != "/stream/generate":
        body = {**body, "stream": True}
    status, _, data = server.request("POST", path, {**body, "timeline": True})
    assert status == 200, data
    with_one = []
    for event in data.decode().strip().split("\n\n"):
        name = event.split("event: ")[1].split("\n")[0] if event.startswith("event: ") else None
        said = json.loads(event.split("data: ", 1)[1])
        if "timeline" in said or "timeline" in said.get("response", {}):
            assert name == at and said.get("stop") is not False
            with_one += said.get("response", said)["timeline"]["choices"]
    assert sorted(c["index"] for c in with_one) == list(range(2 if path == "/completion" else 1))
    for c in with_one:
        check_events(c, c["events"][-1]["reason"])


def test_chunks_of_a_long_prompt(start_server):
    server = start_server("--batch-tokens", 64, "--max-running", 4)
    answer = server.json("POST", COMPLETIONS, {**ASK, "prompt": list(range(300, 600)),
                                               "timeline": True})
    events = answer["timeline"]["choices"][0]["events"]
    chunks = [e["tokens"] for e in events if e["event"] == "prefill"]
    assert len(chunks) >= 5 and sum(chunks) == 300 and max(chunks) <= 64


def test_more_chunks_than_are_kept(start_server):
    server = start_server("--batch-tokens", 4, "--max-running", 4)
    answer = server.json("POST", COMPLETIONS, {**ASK, "prompt": list(range(300, 700)),
                                               "timeline": True})
    choice = answer["timeline"]["choices"][0]
    names = [e["event"] for e in choice["events"]]
    assert len(names) == 64 + 3 and names[-2:] == ["first_token", "done"]
    assert choice["omitted"] == 100 + 1 - 64


def test_preemption_shows(start_server):
    """One of high priority takes the only place."""
    server = start_server("--max-running", 1)
    c = http.client.HTTPConnection(server.url.split("//")[1], timeout=300)
    c.request("POST", COMPLETIONS, json.dumps({**ASK, "max_tokens": 600, "stream": True,
                                               "timeline": True}))
    r = c.getresponse()
    assert r.readline().startswith(b"data: ")
    server.json("POST", COMPLETIONS, {**ASK, "prompt": "Another", "priority": 100})
    data = r.read().decode()
    c.close()
    last = json.loads(data.split("\n\n")[-3][6:])
    names = check_events(last["timeline"]["choices"][0], "length")
    if "preempted" not in names:
        assert server.metric("weir_preemptions_total") == 0  # it was over before
        pytest.skip("the first request was faster than the second came")
    assert names.index("preempted") < len(names) - 1 - names[::-1].index("admitted")


def test_fetching_shows(start_server, tmp_path):
    prompt = list(range(300, 1300))
    ask = {**ASK, "prompt": prompt, "timeline": True}
    first = start_server("--cache-dir", tmp_path / "cache")
    first.json("POST", COMPLETIONS, ask)
    first.stop()
    server = start_server("--cache-dir", tmp_path / "cache")
    answer = server.json("POST", COMPLETIONS, ask)
    names = check_events(answer["timeline"]["choices"][0], "length")
    if server.metric('weir_tier_declined_total{tier="disk"}'):
        pytest.skip("computing was estimated to be faster than fetching")
    assert names.index("fetching") < names.index("fetched") < names.index("first_token")
    fetched = [e for e in answer["timeline"]["choices"][0]["events"] if e["event"] == "fetched"]
    assert sum(e["tokens"] for e in fetched) == 992  # full blocks before the last token


def test_slow_log(start_server, tmp_path):
    log = tmp_path / "access.log"
    server = start_server("--access-log", log, "--slow-log", 0)
    server.request("POST", COMPLETIONS, ASK)
    line = wait_lines(log, 1)[-1]
    check_events(line["timeline"]["choices"][0], "length")
    server.request("GET", "/v1/models")
    assert "timeline" not in wait_lines(log, 2)[-1]
    assert SECRET not in log.read_text()


def test_slow_log_without_an_access_log(start_server):
    server = start_server("--slow-log", 0)
    server.request("POST", COMPLETIONS, ASK)
    server.wait_log('"timeline"')
    lines = [line for line in server.log.splitlines() if line.startswith("{")]
    assert len(lines) == 1 and json.loads(lines[0])["status"] == 200
    assert SECRET not in server.log
    patient = start_server("--slow-log", 3600000)
    patient.request("POST", COMPLETIONS, ASK)
    patient.stop()
    assert "timeline" not in patient.log


# ---- trace contexts -------------------------------------------------------------------------


@pytest.mark.parametrize("sent, back", [
    (PARENT, PARENT),
    (PARENT[:-2] + "00", PARENT[:-2] + "00"),
    ("01" + PARENT[2:] + "-more", "01" + PARENT[2:]),  # a later version, as far as it is known
    (PARENT + "-more", None),
    ("ff" + PARENT[2:], None),
    (PARENT.upper(), None),
    (PARENT.replace(TRACE, "0" * 32), None),
    (PARENT.replace("b7ad6b7169203331", "0" * 16), None),
    (PARENT[:-1], None),
    (PARENT.replace("-", "_"), None),
    ("", None),
    ("x" * 300, None),
])
def test_traceparent(server, sent, back):
    for path in ("/v1/models", "/nothing"):
        assert server.request("GET", path, headers={"traceparent": sent})[1]["traceparent"] == back


# ---- pages of other origins -----------------------------------------------------------------


PAGE = "https://chat.example"
ASKS = {"Origin": PAGE, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type, x-stainless-os"}


def cors_of(headers):
    return {k.lower(): v for k, v in headers.items()
            if k.lower().startswith("access-control-") or k.lower() == "vary"}


def test_cors_is_off(server):
    status, headers, _ = server.request("OPTIONS", COMPLETIONS, headers=ASKS)
    assert status == 405 and not cors_of(headers)
    assert not cors_of(server.request("GET", "/v1/models", headers={"Origin": PAGE})[1])


def test_cors(start_server):
    server = start_server("--cors-origin", "http://other", "--cors-origin", PAGE, "--api-key", "k")
    status, headers, data = server.request("OPTIONS", COMPLETIONS, headers=ASKS)
    assert status == 200 and data == b""  # a browser sends no key with it
    assert cors_of(headers) == {
        "access-control-allow-origin": PAGE, "vary": "Origin",
        "access-control-allow-methods": "GET, POST, DELETE, OPTIONS", "access-control-max-age": "600",
        "access-control-allow-headers": "authorization, content-type, x-stainless-os"}
    assert server.request("OPTIONS", "/v1/models", headers=ASKS)[0] == 200
    key = {"Authorization": "Bearer k"}
    for status, more in ((200, key), (401, {})):  # a page may read why it was refused
        got, headers, _ = server.request("GET", "/v1/models", headers={"Origin": PAGE, **more})
        assert got == status and headers["access-control-allow-origin"] == PAGE
        assert "Retry-After" in headers["access-control-expose-headers"]
    _, headers, _ = server.request("POST", "/v1/messages", {}, headers={"Origin": PAGE, "traceparent": PARENT, **key})
    exposed = headers["access-control-expose-headers"].lower().split(", ")
    hidden = {name.lower() for name in headers} - set(exposed)
    assert "request-id" in exposed and not any("-id" in name or "trace" in name for name in hidden)
    for origin in ("https://evil.example", PAGE + ".evil", "null", PAGE.upper()):
        status, headers, _ = server.request("OPTIONS", COMPLETIONS, headers={**ASKS, "Origin": origin})
        assert status == 200 and cors_of(headers) == {"vary": "Origin"}
        _, headers, _ = server.request("GET", "/v1/models", headers={"Origin": origin, **key})
        assert cors_of(headers) == {"vary": "Origin"}
    # not a preflight, and no such route
    assert server.request("OPTIONS", COMPLETIONS, headers={"Origin": PAGE, **key})[0] == 405
    assert server.request("OPTIONS", "/nothing", headers={**ASKS, **key})[0] == 404
    # names only
    odd = {**ASKS, "Access-Control-Request-Headers": "a<b>"}
    assert server.request("OPTIONS", COMPLETIONS, headers=odd)[1]["access-control-allow-headers"] is None


def test_cors_for_pages_of_this_machine(start_server):
    server = start_server("--cors-origin", "localhost", "--cors-origin", PAGE)
    for origin in ("http://localhost", "https://localhost:8443", "http://127.0.0.1:3000", "http://[::1]",
                   "http://[::1]:80", PAGE):
        _, headers, _ = server.request("OPTIONS", COMPLETIONS, headers={**ASKS, "Origin": origin})
        assert headers["access-control-allow-origin"] == origin
    for origin in ("http://localhost.evil.example", "http://notlocalhost", "http://localhost:",
                   "http://localhost:80x", "ftp://localhost", "http://127.0.0.1.evil"):
        _, headers, _ = server.request("OPTIONS", COMPLETIONS, headers={**ASKS, "Origin": origin})
        assert headers["access-control-allow-origin"] is None, origin


def test_cors_of_the_flag_not_of_the_environment(start_server, monkeypatch):
    monkeypatch.setenv("WEIR_CORS_ORIGIN", "*")
    for flags, others in (([], "https://evil.example"), (["--cors-origin", PAGE], None)):
        server = start_server(*flags)
        for origin, want in ((PAGE, PAGE), ("https://evil.example", others)):
            _, headers, _ = server.request("GET", "/v1/models", headers={"Origin": origin})
            assert headers["access-control-allow-origin"] == want


def test_cors_for_all(start_server):
    server = start_server("--cors-origin", "*")
    _, headers, _ = server.request("GET", "/v1/models", headers={"Origin": "null"})
    assert headers["access-control-allow-origin"] == "null" and headers["vary"] == "Origin"
    assert headers["access-control-allow-credentials"] is None
    assert cors_of(server.request("GET", "/v1/models")[1]) == {"vary": "Origin"}
