"""llama-server's own routes: what its documentation promises of each field, one by one."""

import json
import math
import socket
import time

import pytest

PROMPT = "What is the capital of France?"
ASKED = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
PARIS = "The capital of France is Paris."


def complete(server, path="/completion", **body):
    return server.json("POST", path, {"temperature": 0, "n_predict": 12, **body})


def stream(server, **body):
    """The events of a stream; none of them is [DONE]."""
    status, headers, data = server.request(
        "POST", "/completion", {"temperature": 0, "n_predict": 12, "stream": True, **body})
    assert status == 200, data
    assert headers["Content-Type"].startswith("text/event-stream")
    lines = [e for e in data.decode().split("\n\n") if e and not e.startswith(":")]
    assert all(e.startswith("data: {") for e in lines), lines
    return [json.loads(e[6:]) for e in lines]


def refused(server, path, body, word, status=400):
    got, _, data = server.request("POST", path, body)
    assert got == status, (got, data)
    error = json.loads(data)["error"]
    assert error["code"] == status and error["type"] and word in error["message"], error
    return error


@pytest.mark.parametrize("path", ["/completion", "/completions"])
def test_fields_of_an_answer(server, path):
    a = complete(server, path, prompt=PROMPT, n_predict=5, seed=7)
    assert a["index"] == 0 and a["stop"] is True and a["model"] == "weir-nano"
    assert a["prompt"] == PROMPT and a["tokens"] == [] and a["content"]
    assert a["stop_type"] == "limit" and a["stopping_word"] == "" and a["truncated"] is False
    assert a["tokens_predicted"] == 5 and a["has_new_line"] is ("\n" in a["content"])
    t = a["timings"]
    assert t["prompt_n"] + t["cache_n"] == a["tokens_evaluated"] and t["predicted_n"] == 5
    assert t["cache_n"] == a["tokens_cached"]
    for name in ("prompt", "predicted"):
        assert t[f"{name}_ms"] > 0 and t[f"{name}_per_second"] > 0
        # the first token comes with the prompt's last step
        n = t[f"{name}_n"] - (name == "predicted")
        assert math.isclose(t[f"{name}_per_token_ms"], t[f"{name}_ms"] / n)
    g = a["generation_settings"]
    assert (g["seed"], g["temperature"], g["n_predict"], g["stream"]) == (7, 0, 5, False)
    assert g["n_ctx"] > 0 and g["model"] == "weir-nano"


def test_defaults_are_llama_servers(server):
    g = server.json("POST", "/completion", {"prompt": "a", "n_predict": 1})["generation_settings"]
    assert math.isclose(g["temperature"], 0.8, rel_tol=1e-6) and g["top_k"] == 40
    assert math.isclose(g["top_p"], 0.95, rel_tol=1e-6) and math.isclose(g["min_p"], 0.05, rel_tol=1e-6)
    assert g["samplers"] == ["penalties", "top_k", "top_p", "min_p", "temperature"]
    props = server.json("GET", "/props")["default_generation_settings"]["params"]
    for name in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "samplers"):
        assert props[name] == g[name], name


def test_the_seed_that_was_drawn_gives_the_answer_again(server):
    one = server.json("POST", "/completion", {"prompt": "Once", "n_predict": 16, "seed": -1})
    seed = one["generation_settings"]["seed"]
    two = server.json("POST", "/completion", {"prompt": "Once", "n_predict": 16, "seed": seed})
    assert one["content"] == two["content"]


def test_stream_equals_whole(server):
    whole = complete(server, prompt=ASKED, return_tokens=True, n_predict=40)
    events = stream(server, prompt=ASKED, n_predict=40)
    assert [e["stop"] for e in events] == [False] * (len(events) - 1) + [True]
    assert "".join(e["content"] for e in events) == whole["content"] == PARIS
    assert sum((e["tokens"] for e in events), []) == whole["tokens"]
    assert [e["tokens_predicted"] for e in events[:-1]] == list(range(1, len(events)))
    last = events[-1]
    assert last["stop_type"] == whole["stop_type"] == "eos" and last["prompt"] == ASKED
    for name in ("tokens_predicted", "tokens_evaluated", "truncated", "has_new_line", "stopping_word"):
        assert last[name] == whole[name], name


def test_a_whole_prompt_may_hold_control_tokens_on_the_openai_route_if_asked(server):
    """Its clients apply the template themselves."""
    text = server.json("POST", "/apply-template", {"messages": [{"role": "user", "content": PROMPT}]})
    assert text == {"prompt": ASKED}
    assert complete(server, prompt=ASKED, n_predict=-1)["content"] == PARIS
    for name in ("n_predict", "max_tokens", "max_completion_tokens"):
        assert complete(server, prompt=ASKED, **{"n_predict": None, name: 3})["tokens_predicted"] == 3
    chat = server.json("POST", "/v1/chat/completions",
                       {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0})
    n = chat["usage"]["prompt_tokens"]
    assert complete(server, prompt=ASKED)["tokens_evaluated"] == n
    plain = server.json("POST", "/v1/completions", {"prompt": ASKED, "max_tokens": 1})
    assert plain["usage"]["prompt_tokens"] > n
    asked = {"prompt": ASKED, "parse_special": True, "temperature": 0, "max_tokens": 32}
    plain = server.json("POST", "/v1/completions", asked)
    assert plain["usage"]["prompt_tokens"] == n and plain["choices"][0]["text"] == PARIS
    server.json("POST", "/v1/completions", {**asked, "parse_special": "yes"}, status=400)


def test_forms_of_prompts(server):
    ids = server.json("POST", "/tokenize", {"content": PROMPT})["tokens"]
    want = complete(server, prompt=PROMPT)["content"]
    assert complete(server, prompt=ids)["content"] == want
    assert complete(server, prompt={"prompt_string": PROMPT})["content"] == want
    assert complete(server, prompt=[ids[0], *ids[1:3], ""] + ids[3:])["content"] == want
    assert complete(server, prompt=[PROMPT])["content"] == want
    many = complete(server, prompt=[PROMPT, ids, {"prompt_string": PROMPT}, [*ids[:2], *ids[2:]]])
    assert [a["index"] for a in many] == [0, 1, 2, 3]
    assert [a["content"] for a in many] == [want] * 4
    events = stream(server, prompt=[PROMPT, "Once upon"])
    assert "".join(e["content"] for e in events if e["index"] == 0) == want
    assert sorted(e["index"] for e in events if e["stop"]) == [0, 1]
    assert len(complete(server, prompt="a", n_cmpl=3)) == 3
    assert len(complete(server, prompt="a", n=3, n_cmpl=None)) == 3


def test_why_it_stopped(server):
    a = complete(server, prompt=ASKED, stop=["of", "Paris", ""], n_predict=-1)
    assert (a["content"], a["stop_type"], a["stopping_word"]) == ("The capital ", "word", "of")
    a = complete(server, prompt=ASKED, n_predict=-1)
    assert (a["stop_type"], a["stopping_word"], a["truncated"]) == ("eos", "", False)
    a = complete(server, prompt=ASKED, ignore_eos=True, n_predict=30)
    assert a["stop_type"] == "limit" and a["tokens_predicted"] == 30
    event = stream(server, prompt=ASKED, stop="France", n_predict=-1)[-1]
    assert (event["stop_type"], event["stopping_word"]) == ("word", "France")


def test_the_context_is_an_end_too(start_server):
    server = start_server("--context", "64")
    a = complete(server, prompt="a b c", n_predict=1000, ignore_eos=True)
    assert a["truncated"] is True and a["stop_type"] == "limit"
    assert a["tokens_evaluated"] + a["tokens_predicted"] == 64
    a = complete(server, prompt="a b c", n_predict=-1, ignore_eos=True)
    assert a["truncated"] is True
    error = refused(server, "/completion", {"prompt": "x y z " * 100}, "context")
    assert error["type"] == "exceed_context_size_error"


def test_no_output_but_a_warm_cache(server):
    text = "Some text that nobody else in these tests begins with. " * 3
    def generated():
        lines = server.request("GET", "/metrics")[2].decode().splitlines()
        return [x for x in lines if x.startswith(("weir_generation_tokens_total", "weir_time_to_first_token_seconds_",
                                                  "weir_request_decode_time_seconds_count"))]

    before = generated()
    a = complete(server, prompt=text, n_predict=0)
    assert a["stop_type"] == "limit" and not a["truncated"] and generated() == before and len(before) > 5
    assert a["content"] == "" and a["tokens_predicted"] == 0 and a["tokens_cached"] == 0
    assert [e["stop"] for e in stream(server, prompt=text, n_predict=0)] == [True]
    again = complete(server, prompt=text)
    assert again["timings"]["cache_n"] == again["tokens_evaluated"] - 1
    cold = complete(server, prompt=text, cache_prompt=False)
    assert cold["timings"]["cache_n"] == 0 and cold["content"] == again["content"]


def test_the_longest_request_may_have_no_output(start_server):
    server = start_server()
    a = complete(server, prompt="A prompt of some words.", n_predict=0)
    assert server.metric("llamacpp:n_tokens_max") == a["tokens_evaluated"] > 4


def test_probabilities(server):
    a = complete(server, prompt=PROMPT, n_probs=4, return_tokens=True)
    probs = a["completion_probabilities"]
    assert [p["id"] for p in probs] == a["tokens"]
    for p in probs:
        assert p["logprob"] <= 0 and bytes(p["bytes"]).decode("utf-8", "replace") == p["token"]
        assert len(p["top_logprobs"]) == 4 and p["top_logprobs"][0]["id"] == p["id"]
        assert set(p["top_logprobs"][0]) == {"id", "token", "bytes", "logprob"}
    events = stream(server, prompt=PROMPT, n_probs=4)
    assert sum((e["completion_probabilities"] for e in events[:-1]), []) == probs


def test_logit_bias_in_every_form(server):
    first = server.json("POST", "/tokenize", {"content": PARIS})["tokens"][0]
    for bias in ([[first, -100]], [[first, False]], {str(first): -100}, [["The", False]], {"The": -100}):
        assert not complete(server, prompt=ASKED, logit_bias=bias)["content"].startswith("The"), bias
    # one token can be made certain, at any temperature
    a = complete(server, prompt=PROMPT, logit_bias=[[first, 100]], temperature=2, n_predict=3)
    assert a["content"] == "TheTheThe"
    for bias in (1, [1], [[1]], [[1, 2, 3]], [[1, "x"]], [[1, True]], [[1, 101]], [[-1, 1]],
                 [[10**9, 1]], [[1.5, 1]], {"a": None}):
        refused(server, "/completion", {"prompt": "a", "logit_bias": bias}, "logit_bias")


def test_a_token_that_is_biased_often(server):
    """The sum counts: what a step adds, and the answer tells, is not longer than the vocabulary."""
    first = server.json("POST", "/tokenize", {"content": PARIS})["tokens"][0]
    again = [[first, 50], [70, -1], [first, -100], [70, False]]
    a = complete(server, prompt=ASKED, logit_bias=again, n_predict=3)
    assert not a["content"].startswith("The")
    assert a["generation_settings"]["logit_bias"] == [{"token": first, "bias": -50},
                                                      {"token": 70, "bias": None}]
    ids = server.json("POST", "/tokenize", {"content": "a b c"})["tokens"]
    a = complete(server, prompt=ASKED, logit_bias=[["a b c" * 100_000, 0.5]], n_predict=3)
    told = [b["token"] for b in a["generation_settings"]["logit_bias"]]
    assert len(told) == len(set(told)) and set(ids) <= set(told), len(told)


def test_samplers(server):
    """Named stages apply, the others are off; an order that is not Weir's is refused."""
    only = {"prompt": "Once", "n_predict": 8, "seed": 3}
    want = complete(server, **only, samplers=["top_k"], top_k=1, temperature=2)["content"]
    assert want == complete(server, **only)["content"]
    a = complete(server, **only, samplers=["temperature", "top_k"], temperature=1.5, min_p=0.9)
    g = a["generation_settings"]
    assert g["samplers"][:3] == ["penalties", "temperature", "top_k"] and g["min_p"] == 0
    a = complete(server, **only, samplers=["dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"])
    assert a["generation_settings"]["samplers"][-1] == "temperature"
    for wrong in (["top_p", "top_k"], ["top_k", "top_k"], ["mirostat"], [1], "top_k",
                  ["top_k", "temperature", "top_p"], ["temperature", "top_k", "temperature"]):
        refused(server, "/completion", {"prompt": "a", "samplers": wrong}, "samplers")


def test_temperature_comes_last(server):
    """At a temperature that makes all equal, truncation by the model's own probabilities still
    leaves one token."""
    prompt = "Once upon a time"
    body = {"prompt": prompt, "top_k": 0, "min_p": 0, "top_p": 0.1, "temperature": 2, "n_predict": 8}
    greedy = complete(server, prompt=prompt, n_predict=8)["content"]
    assert {complete(server, **body, seed=s)["content"] for s in range(5)} == {greedy}
    first = {complete(server, **body, seed=s, samplers=["temperature", "top_p"])["content"]
             for s in range(5)}
    assert first != {greedy}


def test_parts_of_an_answer(server):
    a = complete(server, prompt=PROMPT, response_fields=["content", "generation_settings/n_predict", "x/y"])
    assert set(a) == {"content", "generation_settings/n_predict"}
    assert a["generation_settings/n_predict"] == 12
    assert set(stream(server, prompt=PROMPT, response_fields=["stop"])[-1]) == {"stop"}
    names = ["generation_settings", "generation_settings/logit_bias", "content", "index", "content"]
    ask = {"prompt": PROMPT, "seed": 7, "n_cmpl": 2, "logit_bias": [[i, 0.5] for i in range(1000)]}
    for whole, parts in zip(complete(server, **ask), complete(server, **ask, response_fields=names)):
        settings = whole["generation_settings"]
        assert len(settings["logit_bias"]) == 1000
        assert parts == {"generation_settings": settings, "generation_settings/logit_bias": settings["logit_bias"],
                         "content": whole["content"], "index": whole["index"]}


def test_a_prompt_without_an_answer_took_its_time(server):
    a = complete(server, prompt="A prompt that no other test has: 7301", n_predict=4, grammar='root ::= ""',
                 ignore_eos=True)
    t = a["timings"]
    assert a["tokens_predicted"] == t["predicted_n"] == t["predicted_ms"] == 0
    assert t["prompt_n"] > 0 and t["prompt_ms"] > 0 and t["prompt_per_second"] > 0


def test_timings_and_progress_on_the_way(server):
    events = stream(server, prompt=PROMPT, timings_per_token=True, return_progress=True)
    progress = [e for e in events if "prompt_progress" in e]
    tokens = events[len(progress):]
    assert progress == events[:len(progress)] and len(progress) >= 2
    assert [e["timings"]["predicted_n"] for e in tokens] == [*range(1, len(tokens)), len(tokens) - 1]
    assert all(e["content"] == "" and e["tokens"] == [] and not e["stop"] for e in progress)


def test_progress_of_a_long_prompt(start_server):
    """One event for what was found, one for each part that is computed."""
    s = start_server("--batch-tokens", 32, "--itl-target-ms", 1000)
    ids = [5 + i % 900 for i in range(200)]
    for cached in (False, True):
        events = stream(s, prompt=ids, n_predict=2, return_progress=True, timings_per_token=True)
        told = [e["prompt_progress"] for e in events if "prompt_progress" in e]
        assert told[0]["processed"] == told[0]["cache"] and told[0]["time_ms"] == 0
        assert (told[0]["cache"] > 100) is cached
        done = [p["processed"] for p in told]
        assert done == sorted(set(done)) and done[-1] == 200
        assert all(p["total"] == 200 and p["cache"] == told[0]["cache"] for p in told)
        assert cached or len(told) >= 3
        times = [p["time_ms"] for p in told]
        assert times == sorted(set(times))  # each its own, however late it was told
        timings = [e["timings"] for e in events if "prompt_progress" in e]
        assert [t["prompt_n"] for t in timings] == [p["processed"] - p["cache"] for p in told]


@pytest.mark.parametrize("field, values", [
    ("n_predict", ["1", 1.5, -2, True]),
    ("temperature", ["1", 2.5, [1]]),
    ("repeat_last_n", [-2, "x"]),
    ("stop", [1, [1], {"a": 1}, ["a"] * 17]),
    ("n_probs", [-1, 21, "1"]),
    ("response_fields", ["content", [1], ["a"] * 257]),
    ("return_tokens", [1]), ("timings_per_token", ["yes"]), ("stream", [1]),
    ("post_sampling_probs", [1]), ("mirostat", [1]), ("dynatemp_range", [0.5]),
    ("typical_p", [0.5]), ("dry_multiplier", [0.8]), ("xtc_probability", [0.1]),
    ("t_max_predict_ms", ["1", -2]), ("min_keep", [2]), ("n_indent", [-1, 1.5]), ("lora", [[{"id": 0}]]),
    ("multimodal_data", [["eA=="]]),
    ("prompt", [None, 1, True, [], [[]], [None], {"a": 1}, [1, 2.5, "a"], [-1], [10**9], [[1, [2]]],
                {"prompt_string": 1}, {"prompt_string": "a", "multimodal_data": ["eA=="]}]),
])
def test_wrong_values(server, field, values):
    for v in values:
        body = {"prompt": "hi", "n_predict": 1, field: v}
        status, _, data = server.request("POST", "/completion", body)
        assert status == 400, (v, status, data)
        error = json.loads(data)["error"]
        assert error["code"] == 400 and error["type"] == "invalid_request_error"
        assert field in error["message"] or "multimodal" in error["message"], (v, error)


def test_penalties_look_at_a_window(server):
    plain = complete(server, prompt=PROMPT, n_predict=30)["content"]
    assert complete(server, prompt=PROMPT, n_predict=30, repeat_last_n=64)["content"] == plain  # none is on
    assert complete(server, prompt=PROMPT, n_predict=30, repeat_last_n=0, repeat_penalty=9)["content"] == plain
    ids = {"prompt": [65, 66, 67], "n_predict": 40, "temperature": 0, "return_tokens": True, "ignore_eos": True}
    bias = {"logit_bias": [[t, 90] for t in range(65, 75)]}  # ten tokens to choose from
    got = {n: server.json("POST", "/completion", {**ids, **bias, "repeat_penalty": 50, "repeat_last_n": n})
           for n in (0, 1, 4, -1)}
    assert len({str(a["tokens"]) for a in got.values()}) == 4
    assert got[4]["generation_settings"]["repeat_last_n"] == 4
    tokens = [65, 66, 67] + got[4]["tokens"]
    assert all(tokens[i] not in tokens[i - 4:i] for i in range(4, len(tokens)))
    default = complete(server, prompt="a", repeat_penalty=1.1)["generation_settings"]
    assert default["repeat_last_n"] == 64


def test_ends_never_come_with_ignore_eos(server):
    """Elsewhere they are ordinary output (docs/API.md)."""
    a = complete(server, prompt=ASKED, n_predict=40, ignore_eos=True, return_tokens=True)
    ends = [b["token"] for b in a["generation_settings"]["logit_bias"]]
    assert ends and all(b["bias"] is None for b in a["generation_settings"]["logit_bias"])
    assert a["tokens_predicted"] == 40 and not set(ends) & set(a["tokens"])
    assert complete(server, prompt=ASKED)["generation_settings"]["logit_bias"] == []


def test_flags_of_queries(server):
    for path, name in (("/slots", "fail_on_no_slot"), ("/v1/kv", "check")):
        for value in ("1", "true", "0", "false"):
            server.json("GET", f"{path}?{name}={value}")
            server.json("GET", f"{path}?other=x&{name}={value}&more")
        for query in (f"{name}=x", f"{name}", f"{name}=", f"a=b&{name}=truely"):
            error = server.json("GET", f"{path}?{query}", status=400)["error"]
            assert name in error["message"]
        server.json("GET", f"{path}?not_{name}=x&{name}y=x")


def test_samplers_that_are_off_still_have_to_make_sense(server):
    for field, value in (("frequency_penalty", 3), ("top_p", 2), ("top_k", "x"), ("min_p", -1)):
        refused(server, "/completion", {"prompt": "a", "samplers": [], field: value}, field)


def test_answers_of_tokens_are_bounded(server):
    """A short id may stand for a long text."""
    pieces = server.json("POST", "/tokenize", {"content": " the" * 4, "with_pieces": True})["tokens"]
    longest = max(range(1533), key=lambda t: len(server.json("POST", "/detokenize", {"tokens": [t]})["content"]))
    text = server.json("POST", "/detokenize", {"tokens": [longest]})["content"]
    n = (16 << 20) // len(text.encode()) + 1
    refused(server, "/detokenize", {"tokens": [longest] * n}, "16777216")
    status, _, data = server.request("POST", "/detokenize", {"token_ids": [longest] * n})
    assert status == 400 and "'token_ids'" in json.loads(data)["error"]["message"]
    assert len(server.json("POST", "/detokenize", {"tokens": [longest] * 1000})["content"]) == 1000 * len(text)
    refused(server, "/tokenize", {"content": "1a" * (1 << 19), "with_pieces": True}, "524288")
    assert len(server.json("POST", "/tokenize", {"content": "1a" * (1 << 19)})["tokens"]) > 1 << 19
    assert pieces


def test_fields_that_tune_what_is_not_here_are_taken(server):
    complete(server, prompt="a", id_slot=3, n_keep=-1, n_cache_reuse=64, mirostat_tau=4, dry_base=2,
             dynatemp_exponent=2, xtc_threshold=0.3, t_max_predict_ms=0, min_keep=0, samplers=None,
             grammar="", lora=[], speculative={"n_max": 4}, model="whatever", mirostat=0)


# --- tokens and templates ---


@pytest.mark.parametrize("text", ["hello world", "naïve 媽 🤗", " lead", "", "a\n\n b", "<|im_start|>x"])
def test_tokens_and_back(server, text):
    ids = server.json("POST", "/tokenize", {"content": text})["tokens"]
    assert server.json("POST", "/detokenize", {"tokens": ids}) == {"content": text}
    pieces = server.json("POST", "/tokenize", {"content": text, "with_pieces": True})["tokens"]
    assert [p["id"] for p in pieces] == ids
    raw = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    assert raw.decode() == text
    old = server.json("POST", "/tokenize", {"text": text})
    assert old["num_tokens"] == len(old["token_ids"])
    assert server.json("POST", "/detokenize", {"token_ids": old["token_ids"]}) == {"text": text}


def test_special_tokens(server):
    one = server.json("POST", "/tokenize", {"content": "<|im_start|>"})["tokens"]
    plain = server.json("POST", "/tokenize", {"content": "<|im_start|>", "parse_special": False})["tokens"]
    assert len(one) == 1 < len(plain)
    assert server.json("POST", "/tokenize", {"text": "<|im_start|>"})["token_ids"] == plain
    mixed = server.json("POST", "/tokenize", {"content": ["a", one[0], "b"]})["tokens"]
    assert mixed[1] == one[0] and len(mixed) == 3


def vllm(server, **body):
    answer = server.json("POST", "/tokenize", body)
    assert set(answer) == {"count", "max_model_len", "tokens", "token_strs"} and answer["token_strs"] is None
    assert answer["count"] == len(answer["tokens"]) and answer["max_model_len"] == 2048
    return answer["tokens"]


def test_a_text_by_the_names_of_vllm(server):
    for text in ("hello world", "", "<|im_start|>x"):
        as_text = server.json("POST", "/tokenize", {"text": text})["token_ids"]
        assert vllm(server, prompt=text) == as_text == vllm(server, prompt=text, model="default", return_token_strs=False)
        for special in (False, True):
            want = server.json("POST", "/tokenize", {"content": text, "parse_special": special})["tokens"]
            assert vllm(server, prompt=text, add_special_tokens=False, parse_special=special, content=None) == want


def test_a_conversation_by_the_names_of_vllm(server):
    """All that a chat says of its prompt counts; what it says of the answer does not."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who are you? <|im_end|>"}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    lengths = set()
    for more in ({}, {"add_generation_prompt": False}, {"tools": tools}, {"tools": tools, "tool_choice": "required"},
                 {"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "low"}):
        ids = vllm(server, messages=messages, add_special_tokens=False, **more)
        n = server.json("POST", "/v1/chat/completions/input_tokens", {"messages": messages, **more})["input_tokens"]
        assert len(ids) == n
        text = server.json("POST", "/apply-template", {"messages": messages, **more})["prompt"]
        assert server.json("POST", "/detokenize", {"tokens": ids})["content"].endswith(text)
        lengths.add(n)
    assert len(lengths) >= 3
    begun = [*messages, {"role": "assistant", "content": "I am"}]
    more = {"continue_final_message": True, "add_generation_prompt": False}
    assert len(vllm(server, messages=begun, **more)) == server.json(
        "POST", "/v1/chat/completions/input_tokens", {"messages": begun, **more})["input_tokens"]


def test_the_version(server):
    version = server.json("GET", "/version")
    assert list(version) == ["version"] and server.json("GET", "/openapi.json")["info"]["version"] == version["version"]


def test_only_this_model_by_the_names_of_vllm(server):
    for body in ({"prompt": "a"}, {"messages": [{"role": "user", "content": "a"}]}):
        assert "other" in server.json("POST", "/tokenize", {**body, "model": "other"}, status=404)["error"]["message"]


@pytest.mark.parametrize("path, body, word", [
    ("/tokenize", {"prompt": 1}, "prompt"), ("/tokenize", {"prompt": ["a"]}, "prompt"), ("/tokenize", {"prompt": [1]}, "prompt"),
    ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"),
    ("/tokenize", {"prompt": "a", "return_token_strs": True}, "return_token_strs"),
    ("/tokenize", {"messages": []}, "messages"), ("/tokenize", {"messages": [{"role": "user"}]}, "messages[0].content"),
    ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "add_special_tokens": True}, "add_special_tokens"),
    ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "chat_template": "x"}, "chat_template"),
    ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs"),
    ("/tokenize", {}, "content"), ("/tokenize", {"content": 1}, "content"), ("/tokenize", {"text": 1}, "text"),
    ("/tokenize", {"content": "a", "with_pieces": 1}, "with_pieces"), ("/tokenize", {"content": [1.5]}, "content"),
    ("/tokenize", {"content": [10**9]}, "content"), ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": "a"}, "tokens"), ("/detokenize", {"tokens": [-1]}, "tokens"),
    ("/detokenize", {"token_ids": [10**9]}, "token_ids"), ("/apply-template", {}, "messages"),
    ("/apply-template", {"messages": []}, "messages"),
])
def test_wrong_bodies(server, path, body, word):
    refused(server, path, body, word)


@pytest.mark.parametrize("fields", [("content", "text"), ("content", "messages"), ("text", "prompt"), ("messages", "prompt")])
def test_one_text_to_tokenize(server, fields):
    """Two are refused, of which one would be passed over; null is none."""
    of = {"content": "a", "text": "a", "prompt": "a", "messages": [{"role": "user", "content": "a"}]}
    first, second = fields
    refused(server, "/tokenize", {k: of[k] for k in fields}, f"'{first}' and '{second}' cannot be given together")
    server.json("POST", "/tokenize", {first: None, second: of[second]})


def test_bad_json_and_methods_in_llama_servers_shape(server):
    status, _, data = server.request("POST", "/completion", b"{")
    assert status == 400 and json.loads(data)["error"]["code"] == 400
    status, headers, data = server.request("PUT", "/props", {})
    assert status == 405 and headers["Allow"] == "GET, HEAD, POST"
    assert json.loads(data)["error"]["code"] == 405
    refused(server, "/props", {}, "properties", status=501)


def test_props_and_slots(start_server):
    server = start_server("--max-running", "3", "--alias", "ours")
    props = server.json("GET", "/props")
    assert props["total_slots"] == 3 and props["model_path"].endswith(".gguf")
    assert props["model_alias"] == "ours" and "im_start" in props["chat_template"]
    slots = server.json("GET", "/slots")
    assert [s["id"] for s in slots] == [0, 1, 2] and not any(s["is_processing"] for s in slots)
    assert slots[0]["n_ctx"] == props["default_generation_settings"]["n_ctx"]
    assert server.json("GET", "/v1/health") == {"status": "ok"}


def test_a_client_that_leaves_frees_its_slot(start_server):
    """Of answers that would take half a minute."""
    server = start_server("--max-running", "1")
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"prompt": "a", "n_cmpl": 60, "ignore_eos": True, "stream": True}).encode()
    with socket.create_connection((host, int(port))) as s:
        s.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert s.recv(100).startswith(b"HTTP/1.1 200")
    end, aborted = time.monotonic() + 30, 'weir_request_success_total{finished_reason="abort"}'
    while server.metric(aborted) < 10 or server.json("GET", "/slots")[0]["is_processing"]:
        assert time.monotonic() < end
    assert server.request("GET", "/slots?fail_on_no_slot=1")[0] == 200


def test_characters_are_never_cut(server):
    """Tokens of single bytes: a stream shows whole characters, and the last one is not lost."""
    emoji = server.json("POST", "/tokenize", {"content": "🤗媽"})["tokens"]
    assert len(emoji) == 7
    for n in range(1, 8):
        prompt = emoji * 6
        whole = complete(server, prompt=prompt, n_predict=n, ignore_eos=True, return_tokens=True)
        events = stream(server, prompt=prompt, n_predict=n, ignore_eos=True)
        assert "".join(e["content"] for e in events) == whole["content"]
        assert whole["content"] == server.json("POST", "/detokenize", {"tokens": whole["tokens"]})["content"]


# --- the form of an answer, in every dialect ---

CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
        "additionalProperties": False}


def test_answers_in_a_form(server):
    ask = [{"role": "user", "content": "hi"}]
    a = complete(server, prompt="hi", json_schema=CITY, n_predict=60)
    assert json.loads(a["content"])["city"] in ("Paris", "Rome") and a["stop_type"] == "eos"
    assert complete(server, prompt="hi", grammar='root ::= "yes" | "no"')["content"] in ("yes", "no")
    m = server.json("POST", "/v1/messages", {
        "messages": ask, "max_tokens": 60, "output_format": {"type": "json_schema", "schema": CITY}})
    assert json.loads(m["content"][0]["text"])["city"] and m["stop_reason"] == "end_turn"
    m = server.json("POST", "/v1/messages", {
        "messages": ask, "max_tokens": 60,
        "output_config": {"format": {"type": "json_schema", "schema": CITY}}})
    assert json.loads(m["content"][0]["text"])["city"]
    r = server.json("POST", "/v1/responses", {"input": "hi", "text": {
        "format": {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}}})
    assert json.loads(r["output"][0]["content"][0]["text"])["city"] and r["status"] == "completed"
    bad = {"type": 7}
    refused(server, "/completion", {"prompt": "a", "json_schema": bad}, "json_schema")
    _, _, data = server.request("POST", "/v1/messages", {
        "messages": ask, "max_tokens": 9, "output_format": {"type": "json_schema", "schema": bad}})
    assert "output_format" in json.loads(data)["error"]["message"]
    e = server.json("POST", "/v1/responses", {"input": "hi", "text": {
        "format": {"type": "json_schema", "name": "x", "schema": bad}}}, status=400)["error"]
    assert e["param"] == "text.format" and "text.format" in e["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
def test_its_name_for_a_limit_on_the_openai_route(server, path):
    body = {"messages": [{"role": "user", "content": "hi"}], "ignore_eos": True}
    assert server.json("POST", path, {**body, "n_predict": 3})["usage"]["completion_tokens"] == 3
    both = server.json("POST", path, {**body, "n_predict": -1, "max_tokens": 4})
    assert both["usage"]["completion_tokens"] == 4
    for wrong in (0, -2, "1"):
        assert server.json("POST", path, {**body, "n_predict": wrong}, status=400)["error"]["param"] == "n_predict"
