"""The plain routes of earlier engines, batches of prompts, and the figures as JSON."""

import concurrent.futures
import json

import pytest


def tokens_of(server, text):
    return server.json("POST", "/tokenize", {"text": text})["token_ids"]


def generated(server, prompt, **body):
    """What /v1/completions makes of the same prompt."""
    body = {"prompt": prompt, "max_tokens": 50, "return_tokens": True, **body}
    return server.json("POST", "/v1/completions", body)["choices"][0]


def sse(data):
    """-> [(event, object)]"""
    out = []
    for block in data.decode().split("\n\n"):
        if block and not block.startswith(":"):
            event, line = block.split("\n")
            assert event.startswith("event: ") and line.startswith("data: ")
            out.append((event[7:], json.loads(line[6:])))
    return out


def test_generate(server):
    got = server.json("POST", "/generate", {"prompt": "Once there was a"})
    assert set(got) == {"token_ids", "text", "num_generated"}
    want = generated(server, "Once there was a", temperature=0)
    assert got["text"] == "Once there was a" + want["text"]
    assert got["token_ids"] == tokens_of(server, "Once there was a") + want["tokens"]
    assert got["num_generated"] == len(want["tokens"]) <= 50


@pytest.mark.parametrize("asked, same", [
    ({"strategy": "greedy", "temperature": 1.5, "top_k": 3}, {"temperature": 0}),
    ({"strategy": "top_k", "seed": 7}, {"temperature": 1.0, "top_k": 50, "seed": 7}),
    ({"strategy": "top_k", "top_k": 5, "top_p": 0.1, "temperature": 0.8, "seed": 7},
     {"temperature": 0.8, "top_k": 5, "seed": 7}),
    ({"strategy": "top_p", "seed": 7}, {"temperature": 1.0, "top_p": 0.9, "seed": 7}),
    ({"strategy": "top_p", "top_p": 0.5, "top_k": 1, "seed": 8},
     {"temperature": 1.0, "top_p": 0.5, "seed": 8}),
])
def test_strategies(server, asked, same):
    got = server.json("POST", "/generate", {"prompt": "Tell me", "max_tokens": 12, **asked})
    want = generated(server, "Tell me", **{**same, "max_tokens": 12})
    assert got["token_ids"][-got["num_generated"]:] == want["tokens"]


def test_the_default_length_gives_way(start_server):
    s = start_server("--context", "24")
    got = s.json("POST", "/generate", {"prompt": "one two three four five"})
    assert len(got["token_ids"]) <= 24
    s.json("POST", "/generate", {"prompt": "one two", "max_tokens": 50}, status=400)


def test_other_names_of_the_length(start_server):
    s = start_server("--context", "64")
    body = {"prompt": "Tell me", "ignore_eos": True}
    n_prompt = len(tokens_of(s, "Tell me"))
    for name in ("max_tokens", "max_completion_tokens", "n_predict"):
        for n in (5, 55):
            assert s.json("POST", "/generate", {**body, name: n})["num_generated"] == n
        many = s.json("POST", "/v1/batch/completions", {"prompts": ["Tell me"], "ignore_eos": True, name: 5})
        assert many["results"][0]["num_generated"] == 5
        s.json("POST", "/generate", {**body, name: "5"}, status=422)
    for name in ("max_tokens", "max_completion_tokens"):  # no number: the default
        assert s.json("POST", "/generate", {**body, name: -1})["num_generated"] == 50
        if name != "n_predict":  # of which more than fits means what fits
            s.json("POST", "/generate", {**body, name: 500}, status=400)
    assert s.json("POST", "/generate", {**body, "max_tokens": 6, "n_predict": 5})["num_generated"] == 6
    for n in (-1, 500):
        got = s.json("POST", "/generate", {**body, "n_predict": n})
        assert got["num_generated"] == 64 - n_prompt


def test_the_operator_has_the_defaults(start_server):
    s = start_server("--max-tokens", 7, "--temperature", 1.5, "--top-k", 20, "--top-p", 0.9, "--seed", 3)
    body = {"prompt": "Tell me", "ignore_eos": True}
    many = {"prompts": ["Tell me"] * 2, "ignore_eos": True}

    def tokens(**more):
        got = s.json("POST", "/generate", {**body, **more})
        return got["token_ids"][-got["num_generated"]:]

    def same(**more):
        more = {"max_tokens": 7, "return_tokens": True, **more}
        return s.json("POST", "/v1/completions", {**body, **more})["choices"][0]["tokens"]

    assert tokens() == same() != same(temperature=0)
    assert len(tokens()) == 7 and len(tokens(max_tokens=9)) == 9
    assert tokens(temperature=0.5, top_k=3) == same(temperature=0.5, top_k=3)
    assert tokens(strategy="greedy") == same(temperature=0)
    assert tokens(strategy="top_k") == same(top_p=1)
    assert tokens(strategy="top_p", top_p=0.5) == same(top_k=0, top_p=0.5)
    s.json("POST", "/generate", {**body, "top_p": 2}, status=400)
    for path in "/batch/generate", "/v1/batch/completions":
        got = s.json("POST", path, many)["results"]
        assert [r["token_ids"][-7:] for r in got] == [same()] * 2
        assert [r["num_generated"] for r in got] == [7] * 2
    events = sse(s.request("POST", "/stream/generate", body)[2])
    assert [o["token_id"] for e, o in events if e == "token"] == same()
    # the operator's length, as the route's own, gives way to what fits
    s = start_server("--max-tokens", 30, "--context", 24)
    assert len(s.json("POST", "/generate", {**body, "prompt": "one two"})["token_ids"]) <= 24


@pytest.mark.parametrize("path", ["/batch/generate", "/realize/batch"])
def test_generate_many(server, path):
    prompts = ["Once", "What is 2 + 3?", "The capital of France is"]
    got = server.json("POST", path, {"prompts": prompts, "max_tokens": 9})
    alone = [server.json("POST", "/generate", {"prompt": p, "max_tokens": 9}) for p in prompts]
    assert got == {"results": alone}


@pytest.mark.parametrize("path", ["/stream/generate", "/realize/generate"])
def test_stream(server, path):
    body = {"prompt": "Once there was a", "max_tokens": 20}
    status, headers, data = server.request("POST", path, body)
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream")
    events = sse(data)
    whole = server.json("POST", "/generate", body)
    n = whole["num_generated"]
    assert [e for e, _ in events] == ["token"] * n + ["done"]
    assert [o["token_id"] for _, o in events[:-1]] == whole["token_ids"][-n:]
    assert "Once there was a" + "".join(o["text"] for _, o in events[:-1]) == whole["text"]
    assert events[-1][1] == {"num_generated": n}


def test_a_batch_of_prompts(server):
    prompts = [f"Number {i} is" for i in range(20)] + ["Once there was a"] * 2
    got = server.json("POST", "/v1/batch/completions", {"prompts": prompts})
    assert [r["index"] for r in got["results"]] == list(range(22))
    for prompt, r in zip(prompts, got["results"]):
        want = generated(server, prompt, temperature=0)
        assert (r["token_ids"], r["text"]) == (want["tokens"], want["text"])
        assert r["num_generated"] == len(r["token_ids"])
    stats = got["stats"]
    assert stats["batch_size"] == 22 and stats["gpu_used"] is False
    assert stats["total_tokens"] == sum(r["num_generated"] for r in got["results"])
    assert stats["throughput_tps"] == pytest.approx(
        stats["total_tokens"] / stats["processing_time_ms"] * 1000)


def test_each_prompt_of_a_batch_stops_by_itself(server):
    prompts = [f"Number {i} is" for i in range(8)]
    free = server.json("POST", "/v1/batch/completions", {"prompts": prompts, "max_tokens": 30})
    texts = [r["text"] for r in free["results"]]
    # two characters that cut the texts in different places
    stop = next(t[i:i + 2] for t in texts for i in range(1, len(t) - 1)
                if len({u.find(t[i:i + 2]) for u in texts}) > 2)
    got = server.json("POST", "/v1/batch/completions",
                      {"prompts": prompts, "max_tokens": 30, "stop": [stop]})
    assert [r["text"] for r in got["results"]] == [t.split(stop)[0] for t in texts]


def test_a_batch_is_one_batch(start_server):
    s = start_server("--threads", "1")
    s.json("POST", "/v1/batch/completions",
           {"prompts": [f"Number {i} is" for i in range(16)], "max_tokens": 40,
            "ignore_eos": True})
    stats = s.json("GET", "/v1/batch/stats")
    assert stats["queued"] == stats["running"] == 0
    assert stats["steps"] == stats["single_steps"] + stats["batched_steps"]
    assert stats["steps"] <= 60  # not 16 x 40
    assert stats["average_batch"] > 8 and stats["average_wait_ms"] >= 0


def test_batch_tokenize(server):
    texts = ["Once", "", "What is 2 + 3?"]
    got = server.json("POST", "/batch/tokenize", {"texts": texts})
    assert got["results"] == [server.json("POST", "/tokenize", {"text": t}) for t in texts]


def test_models(server):
    [model] = server.json("GET", "/models")["models"]
    assert model["id"] == model["name"] == server.json("GET", "/v1/models")["data"][0]["id"]
    assert model["format"] == "gguf" and model["loaded"] is True
    assert "llama" in model["description"]


def test_metrics_are_measured(start_server):
    s = start_server()
    before = s.json("GET", "/v1/metrics")
    assert before["total_requests"] == before["total_tokens"] == 0
    assert before["latency_p50_ms"] == before["throughput_tok_per_sec"] == 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: generated(s, f"Number {i}", ignore_eos=True), range(8)))
    after = s.json("GET", "/v1/metrics")
    assert after["total_requests"] == 8 and after["total_tokens"] == 400
    assert 0 < after["latency_p50_ms"] <= after["latency_p95_ms"] <= after["latency_p99_ms"]
    assert after["throughput_tok_per_sec"] > 0 and after["memory_used_bytes"] > 0
    assert after["cuda_path_active"] is False and after["gpu_utilization_percent"] == 0
    assert after["queue_depth"] == after["batch_size"] == 0
    assert after["model_name"] == "weir-nano" and after["uptime_secs"] >= 0


def test_chat_stream(server):
    messages = [{"role": "user", "content": "What is 37 + 48?"}]
    body = {"messages": messages, "temperature": 0, "max_tokens": 5000}
    text = ""
    status, headers, data = server.request("POST", "/v1/chat/completions/stream", body)
    assert status == 400 and b"4096" in data  # the cap, and this model's context is shorter
    for value in (5000.0, 1e15):
        status, _, data = server.request("POST", "/v1/chat/completions/stream", {**body, "max_tokens": value})
        assert status == 400 and b"4096" in data
    for name in ("max_tokens", "max_completion_tokens", "n_predict"):
        capped = {**body, "max_tokens": None, name: 5000.5}
        status, _, data = server.request("POST", "/v1/chat/completions/stream", capped)
        assert status == 400 and json.loads(data)["error"]["param"] == name
    end = server.events("/v1/chat/completions/stream", {**body, "max_tokens": None, "n_predict": 5000, "verbose": True})[-1]
    assert end["__verbose"]["generation_settings"]["n_predict"] == 4096
    body["max_tokens"] = 20
    chunks = server.events("/v1/chat/completions/stream", body)
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
    whole = server.json("POST", "/v1/chat/completions", body)
    assert text == whole["choices"][0]["message"]["content"]
    assert server.request("POST", "/v1/chat/completions/stream", b"{")[0] == 400


@pytest.mark.parametrize("path, body, status, want", [
    ("/generate", {"prompt": ""}, 400, "empty"),
    ("/generate", {"prompt": "a", "strategy": "beam"}, 400, "'strategy'"),
    ("/generate", {"prompt": "a", "model_id": "other"}, 404, "other"),
    ("/generate", {"prompt": "a", "max_tokens": 0}, 400, "'max_tokens'"),
    ("/generate", {"prompt": "a", "temperature": 9}, 400, "'temperature'"),  # also where it does not count
    ("/generate", {"prompt": "a", "temperature": 9, "strategy": "top_k"}, 400, "'temperature'"),
    ("/stream/generate", {"prompt": "a", "top_k": -2, "strategy": "top_p"}, 400, "'top_k'"),
    ("/generate", {"prompt": "a", "top_p": 2}, 400, "'top_p'"),
    ("/generate", {}, 422, "'prompt' is required"),
    ("/generate", {"prompt": None}, 422, "'prompt'"),
    ("/batch/generate", {"prompts": None}, 422, "'prompts'"),
    ("/generate", {"prompt": 5}, 422, "'prompt'"),
    ("/generate", {"prompt": "a", "max_tokens": "5"}, 422, "'max_tokens'"),
    ("/generate", {"prompt": "a", "stream": True}, 400, "'stream'"),
    ("/generate", {"prompt": "a", "add_special_tokens": False}, 400, "'add_special_tokens'"),
    ("/stream/generate", {"prompt": "a", "add_special_tokens": False}, 400, "'add_special_tokens'"),
    ("/v1/batch/completions", {"prompts": ["a"], "add_special_tokens": False}, 400, "'add_special_tokens'"),
    ("/generate", b"{", 422, "line 1"),
    ("/generate", b"[]", 422, "object"),
    ("/batch/generate", {"prompts": []}, 400, "'prompts' has 0"),
    ("/batch/generate", {"prompts": "a"}, 422, "'prompts'"),
    ("/batch/generate", {"prompts": ["a", ""]}, 400, "'prompts[1]' is empty"),
    ("/batch/generate", {"prompts": ["a", 3]}, 422, "'prompts[1]'"),
    ("/stream/generate", {"prompt": ""}, 400, "empty"),
    ("/v1/batch/completions", {"prompts": []}, 400, "1 to 128"),
    ("/v1/batch/completions", {"prompts": ["a"] * 129}, 400, "1 to 128"),
    ("/v1/batch/completions", {"prompts": ["a"], "n": 2}, 400, "'n'"),
    ("/v1/batch/completions", {"prompts": ["a"], "max_tokens": 10 ** 9}, 400, "context"),
    ("/batch/tokenize", {"texts": []}, 400, "empty"),
    ("/batch/tokenize", {"texts": [1]}, 422, "'texts[0]'"),
    ("/batch/tokenize", {}, 422, "'texts'"),
])
def test_errors_are_a_message(server, path, body, status, want):
    got = server.json("POST", path, body, status=status)
    if want:
        assert set(got) == {"error"} and want in got["error"] and "\n" not in got["error"]


def test_a_full_queue_is_503(start_server):
    s = start_server("--max-running", "1", "--max-queue", "1")
    body = {"prompts": ["a", "b"], "max_tokens": 1000, "ignore_eos": True}
    for _ in range(20):  # unless they come one after the other
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: s.request("POST", "/v1/batch/completions", body),
                                    range(4)))
        if {a[0] for a in answers} != {200}:
            break
    assert sorted({a[0] for a in answers}) == [200, 503]
    full = next(a for a in answers if a[0] == 503)
    assert "full" in json.loads(full[2])["error"] and int(full[1]["Retry-After"]) >= 1
    error = s.json("POST", "/v1/batch/completions", {"prompts": ["a"] * 3}, status=400)["error"]
    assert "at most 2" in error


def test_methods(server):
    status, headers, data = server.request("GET", "/generate")
    assert status == 405 and headers["Allow"] == "POST" and "error" in json.loads(data)
