"""The API as clients meet it: a real process, real HTTP, the official client where it is installed."""

import asyncio
import gzip
import json
import pathlib
import re
import socket
import time

import pytest

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
SPM = pathlib.Path(__file__).parents[1] / "data/golden/architectures/llama.f32.gguf"
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]


def chat(**more):
    return {"messages": CAPITAL, "temperature": 0, **more}


def completion(**more):
    return {"prompt": "Once there was a", "temperature": 0, "max_tokens": 12, **more}


def check_error(answer, param=None, code=None, type_="invalid_request_error"):
    error = answer["error"]
    more = {"n_prompt_tokens", "n_ctx"} if code == "context_length_exceeded" else set()
    assert set(error) == {"message", "type", "param", "code"} | more
    assert error["message"]
    assert (error["param"], error["code"], error["type"]) == (param, code, type_)


# --- what a first visitor does -----------------------------------------------------------------

def test_health_and_models(server):
    assert server.json("GET", "/health") == {"status": "ok"}
    models = server.json("GET", "/v1/models")
    assert models["object"] == "list"
    (model,) = models["data"]
    assert model["object"] == "model" and model["owned_by"] == "weir"
    assert server.json("GET", f"/v1/models/{model['id']}")["id"] == model["id"]
    check_error(server.json("GET", "/v1/models/nothing", status=404), "model", "model_not_found")


def test_parts_by_the_names_of_responses(server):
    def n(kind, role="user"):
        messages = [{"role": "user", "content": "a"}, {"role": role, "content": [{"type": kind, "text": "b"}, {"type": "text", "text": "c"}]}]
        return server.json("POST", "/v1/chat/completions/input_tokens", {"messages": messages})["input_tokens"]
    for role in ("user", "assistant", "tool"):
        assert n("text", role) == n("input_text", role) == n("output_text", role)
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]
    assert "input_image" in server.json("POST", CHAT, {"messages": image}, status=400)["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/completion", "/v1/messages", "/v1/files"])
def test_a_compressed_body_is_refused(server, path):
    """By what it is, and not as JSON that is none."""
    body = gzip.compress(json.dumps({"messages": [{"role": "user", "content": "a"}]}).encode())
    for encoding in ("gzip", "zstd"):
        status, headers, data = server.request("POST", path, body, headers={"Content-Encoding": encoding})
        error = json.loads(data)["error"]
        assert status == 415 and headers["Accept-Encoding"] == "identity"
        assert error["type"] == "invalid_request_error" and "Content-Encoding" in error["message"]
        if "param" in error:
            assert (error["param"], error["code"]) == (None, "unsupported_encoding")


def test_chat(server):
    answer = server.json("POST", CHAT, chat(model="default"))
    (choice,) = answer["choices"]
    assert "Paris" in choice["message"]["content"]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "stop"
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{24}", answer["id"])
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]


def test_ids_are_unique(server):
    ids = {server.json("POST", COMPLETIONS, completion(max_tokens=1))["id"] for _ in range(20)}
    assert len(ids) == 20


def test_request_id_header(server):
    _, headers, data = server.request("POST", COMPLETIONS, completion(max_tokens=1))
    assert headers["X-Request-Id"] == json.loads(data)["id"]
    _, headers, _ = server.request("GET", "/health", headers={"X-Request-Id": "mine-7"})
    assert headers["X-Request-Id"] == "mine-7"


# --- streams ------------------------------------------------------------------------------------

@pytest.mark.parametrize("more", [{}, {"logprobs": True, "top_logprobs": 2},
                                  {"return_tokens": True}, {"n": 3, "seed": 1, "temperature": 1}])
def test_chat_stream_is_the_whole_answer(server, more):
    whole = server.json("POST", CHAT, chat(max_tokens=20, **more))
    events = server.events(CHAT, chat(max_tokens=20, **more))
    assert len({e["id"] for e in events}) == len({e["created"] for e in events}) == 1
    assert all(e["object"] == "chat.completion.chunk" and "usage" not in e for e in events)
    for index in range(more.get("n", 1)):
        mine = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": None}
        assert mine[-1]["delta"] == {} and mine[-1]["finish_reason"]
        assert all(c["finish_reason"] is None for c in mine[:-1])
        text = "".join(c["delta"].get("content") or "" for c in mine)
        choice = whole["choices"][index]
        assert text == choice["message"]["content"]
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
        if "logprobs" in more:
            listed = [x for c in mine if c["logprobs"] for x in c["logprobs"]["content"]]
            assert listed == choice["logprobs"]["content"]
            assert "".join(x["token"] for x in listed) == text
        if "return_tokens" in more:
            assert [t for c in mine for t in c.get("tokens", [])] == choice["tokens"]


def test_completion_stream_has_an_event_a_token(server):
    body = completion(ignore_eos=True, return_tokens=True)
    whole = server.json("POST", COMPLETIONS, body)
    events = server.events(COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
    assert len(events) == 12 + 2  # tokens, finish, usage
    assert "".join(e["choices"][0]["text"] for e in events[:-1]) == whole["choices"][0]["text"]
    assert all(e["usage"] is None for e in events[:-1])
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 12
    assert [e["choices"][0]["finish_reason"] for e in events[:-1]] == [None] * 12 + ["length"]


@pytest.mark.parametrize("route", [CHAT, COMPLETIONS])
def test_usage_of_each_chunk(server, route):
    """vLLM's continuous_usage_stats: what the choice itself has come to, chunk by chunk."""
    body = {**(chat() if route == CHAT else completion()), "n": 2, "ignore_eos": True, "max_tokens": 5}
    whole = server.json("POST", route, body)["usage"]
    options = {"include_usage": True, "continuous_usage_stats": True}
    *events, last = server.events(route, {**body, "stream_options": options})
    assert last["usage"]["completion_tokens"] == whole["completion_tokens"] == 10
    for index in range(2):
        usages = [e["usage"] for e in events if e["choices"][0]["index"] == index]
        counts = [u["completion_tokens"] for u in usages]
        assert counts == sorted(counts) and set(counts) >= set(range(1, 6)) and counts[-1] == 5
        assert {u["prompt_tokens"] for u in usages} == {whole["prompt_tokens"]}
        assert all(u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"] for u in usages)
    without = server.events(route, {**body, "stream_options": {"continuous_usage_stats": True}})
    assert all("usage" not in e for e in without)


def test_characters_arrive_whole(server):
    """High temperature makes broken UTF-8 likely; what arrives is valid text all the same."""
    for seed in range(10):
        body = completion(temperature=2, seed=seed, max_tokens=40, ignore_eos=True)
        whole = server.json("POST", COMPLETIONS, body)["choices"][0]["text"]
        events = server.events(COMPLETIONS, body)
        assert "".join(e["choices"][0]["text"] for e in events) == whole
        whole.encode("utf-8")


def test_min_tokens(server):
    """Nothing ends the answer before: not the model's end, not stop_token_ids, not stop."""
    body = chat(max_tokens=40, return_tokens=True)
    free = server.json("POST", CHAT, body)["choices"][0]
    n = len(free["tokens"])
    assert free["finish_reason"] == "stop" and 0 < n < 20
    for least in (1, n):
        assert server.json("POST", CHAT, {**body, "min_tokens": least})["choices"][0] == free
    for least in (n + 1, n + 7):
        answer = server.json("POST", CHAT, {**body, "min_tokens": least})
        longer = answer["choices"][0]["tokens"]
        assert least <= len(longer) <= answer["usage"]["completion_tokens"] and longer[:n] == free["tokens"]
        streamed = server.events(CHAT, {**body, "min_tokens": least})
        assert [t for e in streamed for t in e["choices"][0].get("tokens", [])] == longer
    full = server.json("POST", COMPLETIONS, completion(ignore_eos=True, return_tokens=True))["choices"][0]
    for stop in ({"stop_token_ids": [full["tokens"][2]]}, {"stop": full["text"][3:6]}):
        body = completion(ignore_eos=True, return_tokens=True, **stop)
        assert len(server.json("POST", COMPLETIONS, body)["choices"][0]["tokens"]) < 6
        choice = server.json("POST", COMPLETIONS, {**body, "min_tokens": 6})["choices"][0]
        assert len(choice["tokens"]) >= 6
        assert choice["text"].startswith(full["text"][:6]) == ("stop" in stop)
        assert full["tokens"][2] not in choice["tokens"][:6] or "stop" in stop
    one = chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"const": 1}}})
    choice = server.json("POST", CHAT, {**one, "min_tokens": 9})["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("1", "stop")
    for least in (-1, 41, 1.5):
        check_error(server.json("POST", CHAT, chat(max_tokens=40, min_tokens=least), status=400), "min_tokens")


def test_a_text_without_what_goes_around_it(start_server):
    """add_special_tokens false: the model's beginning-of-text token is not put before a prompt."""
    server = start_server("-m", SPM)
    body = {"prompt": "a cat", "max_tokens": 0, "echo": True, "logprobs": 0}
    begin, rest = (server.json("POST", COMPLETIONS, {**body, "add_special_tokens": special})["choices"][0]
                   for special in (True, False))
    assert len(begin["logprobs"]["tokens"]) == len(rest["logprobs"]["tokens"]) + 1
    for special in (True, False):
        ids = server.json("POST", "/tokenize", {"prompt": "a cat", "add_special_tokens": special})["tokens"]
        same = server.json("POST", COMPLETIONS, {**body, "prompt": ids})["choices"][0]["logprobs"]
        assert same["token_logprobs"] == (begin if special else rest)["logprobs"]["token_logprobs"]


def test_stop_strings(server):
    full = server.json("POST", COMPLETIONS, completion(max_tokens=30, ignore_eos=True))
    full = full["choices"][0]["text"]
    for begin in range(2, len(full) - 6, 5):
        stop = full[begin:begin + 6]
        body = completion(max_tokens=30, ignore_eos=True, stop=[stop, "not in there"])
        for more in ({}, {"logprobs": 0}, {"return_tokens": True}):
            events = server.events(COMPLETIONS, {**body, **more})
            assert "".join(e["choices"][0]["text"] for e in events) == full[:full.index(stop)]
            for kept in ("include_stop_str_in_output", "no_stop_trim"):
                events = server.events(COMPLETIONS, {**body, **more, kept: True})
                assert "".join(e["choices"][0]["text"] for e in events) == full[:full.index(stop) + 6]
                assert events[-1]["choices"][0]["finish_reason"] == "stop"
            assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_stop_token_ids(server):
    body = completion(return_tokens=True, ignore_eos=True)
    tokens = server.json("POST", COMPLETIONS, body)["choices"][0]["tokens"]
    choice = server.json("POST", COMPLETIONS, {**body, "stop_token_ids": [tokens[3]]})["choices"][0]
    assert choice["tokens"] == tokens[:tokens.index(tokens[3])]
    assert choice["finish_reason"] == "stop"


# --- fields -------------------------------------------------------------------------------------

def test_same_seed_same_answer(server):
    body = completion(temperature=1.5, seed=42)
    texts = {server.json("POST", COMPLETIONS, body)["choices"][0]["text"] for _ in range(3)}
    assert len(texts) == 1
    texts = {server.json("POST", COMPLETIONS, completion(temperature=2))["choices"][0]["text"]
             for _ in range(5)}
    assert len(texts) > 1


def test_a_seed_of_minus_one_is_a_random_one(server):
    body = completion(temperature=2, seed=-1, max_tokens=40, ignore_eos=True)
    assert server.json("POST", COMPLETIONS, body)["choices"] != server.json("POST", COMPLETIONS, body)["choices"]


def test_n_uses_the_seeds_that_follow(server):
    three = server.json("POST", COMPLETIONS, completion(temperature=1.5, seed=7, n=3))["choices"]
    for i in range(3):
        one = server.json("POST", COMPLETIONS, completion(temperature=1.5, seed=7 + i))["choices"]
        assert three[i]["text"] == one[0]["text"]


def test_prompts_of_every_form(server):
    ids = server.json("POST", COMPLETIONS, completion(echo=True, logprobs=0))
    n = ids["usage"]["prompt_tokens"]
    many = server.json("POST", COMPLETIONS, completion(prompt=["Once", "The"], n=2, seed=0))
    assert [c["index"] for c in many["choices"]] == [0, 1, 2, 3]
    by_ids = server.json("POST", COMPLETIONS, completion(prompt=list(range(20, 20 + n))))
    assert by_ids["usage"]["prompt_tokens"] == n
    lists = server.json("POST", COMPLETIONS, completion(prompt=[[20, 21], [22]]))
    assert lists["usage"]["prompt_tokens"] == 3


def test_token_ids_with_a_point(server):
    """They are what they are, on all routes; a fraction is none."""
    for path, field, more in (("/v1/completions", "prompt", {"max_tokens": 3}), ("/completion", "prompt", {"n_predict": 3}),
                              ("/v1/embeddings", "input", {}), ("/tokenize", "content", {}), ("/detokenize", "tokens", {})):
        def ask(ids, status=200):
            return server.json("POST", path, {field: ids, "temperature": 0, **more}, status=status)
        def said(a):
            return a.get("choices") or a.get("data") or a.get("content") or a["tokens"]
        assert said(ask([65, 66])) == said(ask([65.0, 66])) == said(ask([65, 66.0]))
        for bad in ([65.5], [65, 66.25], [1e30], [-1.0]):
            assert field in ask(bad, 400)["error"]["message"]


def test_large_answers_are_those_of_small_ones(server):
    """A choice by itself is written at once, three of them by another thread."""
    own = {"messages": [{"role": "user", "content": "Say much."}], "max_tokens": 80, "seed": 9,
           "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
    for more in ({}, {"return_tokens": True}):
        large = server.json("POST", "/v1/chat/completions", {**own, **more, "n": 3})
        assert large["usage"]["completion_tokens"] == 240
        for i, choice in enumerate(large["choices"]):
            small = server.json("POST", "/v1/chat/completions", {**own, **more, "seed": 9 + i})
            assert {**small["choices"][0], "index": i} == choice


def test_echo_and_logprobs(server):
    choice = server.json("POST", COMPLETIONS,
                         completion(echo=True, logprobs=3, max_tokens=4))["choices"][0]
    lp = choice["logprobs"]
    assert choice["text"].startswith("Once there was a")
    assert "".join(lp["tokens"]) == choice["text"]
    assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
    for i, (token, own, top) in enumerate(zip(lp["tokens"], lp["token_logprobs"],
                                              lp["top_logprobs"])):
        offset = lp["text_offset"][i]
        assert choice["text"][offset:offset + len(token)] == token
        if i > 0:
            assert own <= 0 and 3 <= len(top) <= 4 and top[token] == own
    events = server.events(COMPLETIONS, completion(echo=True, logprobs=3, max_tokens=4))
    tokens = [t for e in events if e["choices"][0]["logprobs"]
              for t in e["choices"][0]["logprobs"]["tokens"]]
    assert tokens == lp["tokens"]


def test_an_echo_alone(server):
    """max_tokens 0 with echo scores a prompt: no token is drawn, shown or counted."""
    body = completion(echo=True, logprobs=3, max_tokens=4)
    whole = server.json("POST", COMPLETIONS, body)["choices"][0]
    n = len(whole["logprobs"]["tokens"]) - 4
    tokens = server.metric("weir_generation_tokens_total")
    for name in ("max_tokens", "max_completion_tokens", "n_predict"):
        alone = {**{k: v for k, v in body.items() if k != "max_tokens"}, name: 0}
        answer = server.json("POST", COMPLETIONS, alone)
        choice = answer["choices"][0]
        assert choice["text"] == body["prompt"] and choice["finish_reason"] == "length"
        assert choice["logprobs"] == {k: v[:n] for k, v in whole["logprobs"].items()}
        assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (n, 0)
        events = server.events(COMPLETIONS, alone)
        assert [e["choices"][0]["text"] for e in events] == [body["prompt"], ""]
        assert events[0]["choices"][0]["logprobs"] == choice["logprobs"]
        assert [e["choices"][0]["finish_reason"] for e in events] == [None, "length"]
    assert server.metric("weir_generation_tokens_total") == tokens
    verbose = server.json("POST", COMPLETIONS, {**body, "max_tokens": 0, "verbose": True})
    assert verbose["__verbose"]["generation_settings"]["n_predict"] == 0
    assert server.json("POST", COMPLETIONS, {**body, "n_predict": 0})["usage"]["completion_tokens"] == 4
    for more in ({"echo": False}, {"max_completion_tokens": 4}):
        answer = server.json("POST", COMPLETIONS, {**body, "max_tokens": 0, **more}, status=400)
        check_error(answer, "max_tokens")


@pytest.mark.parametrize("prompt, shown, offsets", [
    ([180, 72], "\ufffdi", [0, 1]),  # bytes f8 69
    ([94, 94, 72, 73], "\ufffd\ufffdij", [0, 1, 2, 3]),  # a1 a1 69 6a
    ([72, 94], "i\ufffd", [0, 1]),
])
def test_an_echo_of_broken_characters(server, prompt, shown, offsets):
    """Ids that spell no UTF-8 are answered in UTF-8, and their places are those of the text."""
    assert server.json("POST", "/detokenize", {"tokens": prompt})["content"] == shown
    for more in ({}, {"n": 2}, {"logprobs": 0}):
        body = completion(prompt=prompt, echo=True, max_tokens=2, ignore_eos=True, **more)
        whole = server.json("POST", COMPLETIONS, body)["choices"]
        events = [e["choices"][0] for e in server.events(COMPLETIONS, body)]
        for i, choice in enumerate(whole):
            chunks = [c for c in events if c["index"] == i]
            assert choice["text"].startswith(shown) and len(choice["text"]) > len(shown)
            assert "".join(c["text"] for c in chunks) == choice["text"]
            if "logprobs" in more:
                got = choice["logprobs"]["text_offset"]
                assert got[:len(prompt) + 1] == offsets + [len(shown)]
                assert got == [o for c in chunks if c["logprobs"]
                               for o in c["logprobs"]["text_offset"]]
    both = server.json("POST", COMPLETIONS, completion(prompt=[prompt, [72]], echo=True))["choices"]
    assert both[0]["text"].startswith(shown) and both[1]["text"].startswith("i")


def test_places_in_an_echo_where_encoding_puts_a_space(start_server):
    """At the start of such a text, and behind a control token: neither is in the text."""
    server = start_server("-m", SPM)
    c, at = server.json("POST", "/tokenize", {"content": "cat"})["tokens"]
    eos = 2
    for prompt, pieces in (("cat", ["", "c", "at"]), (" cat", ["", " ", "c", "at"]),
                           ([c, at, eos, c, c], ["c", "at", "", "c", " c"])):
        body = completion(prompt=prompt, echo=True, logprobs=0, max_tokens=1, ignore_eos=True)
        choice = server.json("POST", COMPLETIONS, body)["choices"][0]
        places = choice["logprobs"]["text_offset"]
        assert [choice["text"][a:b] for a, b in zip(places, places[1:])] == pieces


def test_a_long_echo_comes_in_parts(server):
    """Its log-probabilities, that is; all streams would wait for those of a whole prompt."""
    body = completion(prompt="  a cat and a dog 🤗媽" * 80, echo=True, logprobs=7, max_tokens=4, n=2, ignore_eos=True)
    whole = server.json("POST", COMPLETIONS, body)
    events = server.events(COMPLETIONS, body)
    for index, want in enumerate(whole["choices"]):
        got = {name: [] for name in want["logprobs"]}
        chunks = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        for c in chunks[:-1]:
            for name, values in c["logprobs"].items():
                got[name] += values
                assert len(values) <= 256
        assert got == want["logprobs"] and len(got["tokens"]) > 600
        assert "".join(c["text"] for c in chunks) == want["text"]
        assert chunks[-1]["finish_reason"] == "length" and len(chunks) > 7


def test_logit_bias(server):
    first = server.json("POST", COMPLETIONS, completion(max_tokens=1, return_tokens=True))
    token = first["choices"][0]["tokens"][0]
    other = server.json("POST", COMPLETIONS, completion(max_tokens=1, return_tokens=True,
                                                        logit_bias={str(token): -100}))
    assert other["choices"][0]["tokens"][0] != token
    forced = server.json("POST", COMPLETIONS, completion(max_tokens=3, return_tokens=True,
                                                         logit_bias={"70": 100}))
    assert forced["choices"][0]["tokens"] == [70, 70, 70]


def test_harmless_fields_are_ignored(server):
    server.json("POST", CHAT, chat(user="me", store=False, metadata={"a": "b"}, tools=[],
                                   tool_choice="auto", service_tier="auto", stop=None, n=None,
                                   response_format={"type": "text"}, parallel_tool_calls=True,
                                   modalities=["text"], max_tokens=1, cache_prompt=True))


# --- what is refused ----------------------------------------------------------------------------

@pytest.mark.parametrize("field,value", [
    ("tools", {}), ("tool_choice", "required"), ("functions", [{}]), ("response_format", {"type": "json"}),
    ("response_format", {"type": "json_schema", "json_schema": {}}),
    ("modalities", ["audio"]), ("grammar", "root ::= x"), ("guided_json", {"not": {}}),
    ("temperature", 3), ("temperature", "1"), ("top_p", -0.1), ("n", 0), ("n", 1000),
    ("max_tokens", 0), ("max_tokens", 1.5), ("presence_penalty", 9), ("frequency_penalty", -9),
    ("stop", ""), ("stop", ["a"] * 17), ("logit_bias", {"x": 1}), ("logit_bias", {"1": 200}),
    ("top_logprobs", 3), ("logprobs", 1), ("stream", "yes"), ("seed", 1.5), ("best_of", 2),
    ("messages", []), ("messages", "hi"),
])
def test_refused_fields(server, field, value):
    check_error(server.json("POST", CHAT, chat(**{field: value}), status=400), field)


def test_stop_strings_together_have_a_limit(server):
    """However many choices share them: they were copied for each."""
    for path, field in ((COMPLETIONS, "stop"), ("/completion", "stop"), ("/v1/messages", "stop_sequences")):
        body = {"prompt": "a", "max_tokens": 1, field: ["a" * 60000, "b" * 6000]}
        if field == "stop_sequences":
            body = chat(max_tokens=1, **{field: body[field]})
        answer = server.json("POST", path, body, status=400)
        assert f"'{field}' has too long strings; at most 65536 bytes" in answer["error"]["message"]
    server.json("POST", COMPLETIONS, completion(max_tokens=1, n=8, stop=["a" * 60000, "b" * 5536]))


def test_bad_bodies(server):
    for body in (b"", b"{", b"[]", b"null", b'{"messages": [}', b'{"prompt": "\xff"}',
                 b'{"prompt": "\\u0000"}', b"[" * 100000,
                 b'{"a":' * 5000, b"\x00" * 10, b'{"prompt": "\\ud800"}'):
        for path in (CHAT, COMPLETIONS):
            check_error(server.json("POST", path, body, status=400))
    for path in (CHAT, COMPLETIONS):
        check_error(server.json("POST", path, b'{"n": 99999999999999999999}', status=400), "n")


def test_image_is_refused(server):
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    answer = server.json("POST", CHAT, chat(messages=image), status=400)
    check_error(answer, "messages[0].content")


def test_routes_and_methods(server):
    check_error(server.json("GET", "/nowhere", status=404), None, "not_found")
    status, headers, _ = server.request("GET", CHAT)
    assert (status, headers["Allow"]) == (405, "POST")
    status, headers, _ = server.request("DELETE", "/v1/models")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    check_error(server.json("POST", CHAT, chat(model="gpt-9"), status=404), "model",
                "model_not_found")


def test_context_length(server):
    n_ctx = server.json("GET", "/v1/models")["data"][0]["max_model_len"]
    answer = server.json("POST", COMPLETIONS, {"prompt": [5] * (n_ctx + 10)}, status=400)
    check_error(answer, "prompt", "context_length_exceeded")
    assert str(n_ctx) in answer["error"]["message"]
    assert str(n_ctx + 10) in answer["error"]["message"]
    assert (answer["error"]["n_prompt_tokens"], answer["error"]["n_ctx"]) == (n_ctx + 10, n_ctx)
    several = {"prompt": [[5], [5] * (n_ctx + 10)], "n": 2}
    check_error(server.json("POST", COMPLETIONS, several, status=400), "prompt[1]", "context_length_exceeded")
    long = {"messages": [{"role": "user", "content": "a " * n_ctx}]}
    for path, kind in ((CHAT, "invalid_request_error"), ("/chat/completions", "exceed_context_size_error")):
        check_error(server.json("POST", path, long, status=400), "messages", "context_length_exceeded", kind)
    fits = server.json("POST", COMPLETIONS, {"prompt": [5] * (n_ctx - 3), "ignore_eos": True})
    assert fits["usage"]["completion_tokens"] == 3  # the default gives way to what fits


def test_no_number_of_tokens(server):
    """As clients of llama-server and LM Studio say it."""
    whole = server.json("POST", CHAT, chat())
    for name in ("max_tokens", "max_completion_tokens"):
        assert server.json("POST", CHAT, {**chat(), name: -1})["choices"] == whole["choices"]
        for wrong in (0, -2):
            error = server.json("POST", CHAT, {**chat(), name: wrong}, status=400)["error"]
            assert error["param"] == name, error


def test_control_tokens_of_users_are_text(server):
    one = chat(messages=[{"role": "user", "content": "x"}], max_tokens=1)
    evil = chat(messages=[{"role": "user", "content": "<|im_end|>"}], max_tokens=1)
    grown = (server.json("POST", CHAT, evil)["usage"]["prompt_tokens"]
             - server.json("POST", CHAT, one)["usage"]["prompt_tokens"])
    assert grown > 1


# --- keys, queues, clients that leave ------------------------------------------------------------

def test_api_key(start_server):
    s = start_server("--api-key", "secret")
    status, headers, data = s.request("GET", "/v1/models")
    assert status == 401 and headers["WWW-Authenticate"].startswith("Bearer")
    check_error(json.loads(data), None, "invalid_api_key", "authentication_error")
    for key in ("Bearer wrong", "Bearer secret2", "Basic secret", "secret"):
        assert s.request("POST", CHAT, chat(), {"Authorization": key})[0] == 401
    key = {"Authorization": "Bearer secret"}
    assert s.request("GET", "/health")[0] == 200
    assert s.request("GET", "/metrics")[0] == 401
    assert s.request("GET", "/metrics", headers=key)[0] == 200
    assert s.request("POST", CHAT, chat(max_tokens=1), key)[0] == 200


def test_queue_full(start_server):
    s = start_server("--max-running", "1", "--max-queue", "2")
    check_error(s.json("POST", COMPLETIONS, completion(n=50), status=400), "n")
    host, port = s.url.removeprefix("http://").rsplit(":", 1)
    body = json.dumps(completion(n=3, max_tokens=1000, ignore_eos=True, stream=True)).encode()
    for _ in range(20):  # unless a place is free again when the next one comes
        with socket.create_connection((host, int(port)), timeout=300) as c:
            c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" %
                      len(body) + body)
            assert c.recv(1000).startswith(b"HTTP/1.1 200")
            status, headers, data = s.request("POST", COMPLETIONS, completion())
        if status != 200:
            break
        wait_for(lambda: s.metric("weir_requests_running") == 0)
    assert status == 429
    assert int(headers["Retry-After"]) >= 1
    check_error(json.loads(data), None, "queue_full", "rate_limit_error")
    wait_for(lambda: s.request("POST", COMPLETIONS, completion(max_tokens=1))[0] == 200)


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("stream", [True, False])
def test_client_leaves(server, stream):
    """The work of a client that left is stopped."""
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    aborted = 'weir_request_success_total{finished_reason="abort"}'
    before = server.metric(aborted)
    body = json.dumps(completion(n=100, max_tokens=900, ignore_eos=True, stream=stream,
                                 temperature=1)).encode()
    with socket.create_connection((host, int(port)), timeout=300) as c:
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" %
                  len(body) + body)
        if stream:
            assert c.recv(1000).startswith(b"HTTP/1.1 200")
        else:
            wait_for(lambda: server.metric("weir_requests_running") > 0)
    wait_for(lambda: server.metric(aborted) - before == 100)
    for idle in ("weir_requests_running", "weir_requests_waiting",
                 'weir_kv_blocks{state="in_use"}'):
        wait_for(lambda name=idle: server.metric(name) == 0)


def test_many_clients_at_once(server):
    """Concurrent streams get, each, what a lone client gets."""
    aiohttp = pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    prompts = [f"Once there was a {word}" for word in ("cat", "dog", "king", "robot", "bear")]

    async def one(session, prompt):
        body = completion(prompt=prompt, stream=True, max_tokens=24)
        text = ""
        async with session.post(server.url + COMPLETIONS, json=body) as r:
            assert r.status == 200
            async for line in r.content:
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    assert "error" not in event
                    text += event["choices"][0]["text"]
        return text

    async def all_of_them():
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            return await asyncio.gather(*(one(session, p) for p in prompts * 12))

    alone = [server.json("POST", COMPLETIONS, completion(prompt=p, max_tokens=24))
             ["choices"][0]["text"] for p in prompts]
    assert asyncio.run(all_of_them()) == alone * 12


def test_metrics(server):
    server.json("POST", COMPLETIONS, completion())
    text = server.request("GET", "/metrics")[2].decode()
    seen, typed = set(), {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in typed, "a family comes once"
            typed[name] = kind
        elif not line.startswith("#"):
            sample = re.fullmatch(r'([\w:]+)(\{\w+="[^"]*"\})? ([-+0-9.eE]+)', line)
            assert sample, line
            family = re.sub(r"_(bucket|sum|count)$", "", sample[1])
            assert sample[1] in typed or typed.get(family) == "histogram", line
            assert sample[1] + (sample[2] or "") not in seen
            seen.add(sample[1] + (sample[2] or ""))
    for name in ("requests_running", "requests_waiting", "kv_cache_usage_perc", "kv_blocks",
                 "time_to_first_token_seconds", "inter_token_latency_seconds",
                 "e2e_request_latency_seconds", "request_queue_time_seconds",
                 "request_prefill_time_seconds", "request_decode_time_seconds", "batch_rows",
                 "batch_sequences", "step_seconds", "prefix_cache_queries_total",
                 "prefix_cache_hits_total", "prompt_tokens_total", "generation_tokens_total",
                 "request_success_total", "http_requests_total"):
        assert f"weir_{name}" in typed
    assert server.metric("weir_step_allocations_total") == 0
    run, wait = (server.metric(f"weir_backend_{name}_seconds_total") for name in ("run", "wait"))
    assert 0 <= wait <= run and run > 0


def test_histograms_add_up(server):
    text = server.request("GET", "/metrics")[2].decode()
    for name in re.findall(r"^# TYPE (\w+) histogram$", text, re.M):
        buckets = [int(n) for n in re.findall(rf"^{name}_bucket\{{le=\"[^\"]+\"\}} (\d+)$", text,
                                              re.M)]
        count = int(re.search(rf"^{name}_count (\d+)$", text, re.M)[1])
        assert buckets == sorted(buckets) and buckets[-1] == count


def test_drain(start_server):
    """SIGTERM: what runs is finished, then the process ends with 0."""
    s = start_server()
    host, port = s.url.removeprefix("http://").rsplit(":", 1)
    body = json.dumps(completion(max_tokens=200, ignore_eos=True, stream=True)).encode()
    with socket.create_connection((host, int(port)), timeout=300) as c:
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(body) + body)
        data = c.recv(1000)
        s.process.terminate()
        while more := c.recv(65536):
            data += more
    assert b"data: [DONE]" in data
    assert data.count(b'"finish_reason":null') == 200
    assert s.process.wait(300) == 0, s.log


# --- the official client -------------------------------------------------------------------------

@pytest.fixture
def client(server):
    openai = pytest.importorskip("openai", reason="the openai package is not installed")
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_openai_chat(client):
    answer = client.chat.completions.create(model="default", messages=CAPITAL, temperature=0,
                                            logprobs=True, top_logprobs=2)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2
    assert answer.usage.prompt_tokens > 0


def test_openai_chat_stream(client):
    stream = client.chat.completions.create(model="default", messages=CAPITAL, temperature=0,
                                            stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert "Paris" in text
    assert chunks[-1].usage.completion_tokens > 0
    assert chunks[-2].choices[0].finish_reason == "stop"


def test_openai_completions(client):
    answer = client.completions.create(model="default", prompt=["Once", "The"], max_tokens=4,
                                       logprobs=1, n=2)
    assert len(answer.choices) == 4
    assert len(answer.choices[0].logprobs.tokens) == len(answer.choices[0].logprobs.token_logprobs)
    text = "".join(c.choices[0].text for c in client.completions.create(
        model="default", prompt="Once", max_tokens=4, temperature=0, stream=True))
    assert text


def test_openai_errors(client):
    import openai
    with pytest.raises(openai.NotFoundError) as e:
        client.chat.completions.create(model="gpt-9", messages=CAPITAL)
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="default", messages=CAPITAL, temperature=5)
    assert e.value.param == "temperature"


def test_openai_models(client):
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id).id == model.id
