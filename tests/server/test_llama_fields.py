"""What llama-server's clients look for in OpenAI's answers, and find here too."""

import pytest

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ASK = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}
TEXT = {"prompt": "Once there was a", "temperature": 0, "max_tokens": 6, "ignore_eos": True}


@pytest.mark.parametrize("path, body", [(CHAT, ASK), (COMPLETIONS, TEXT)])
def test_timings(server, path, body):
    whole = server.json("POST", path, body)
    t, usage = whole["timings"], whole["usage"]
    assert t["prompt_n"] + t["cache_n"] == usage["prompt_tokens"]
    assert t["predicted_n"] == usage["completion_tokens"]
    events = server.events(path, body)
    assert "timings" in events[-1] and not any("timings" in e for e in events[:-1])
    events = server.events(path, {**body, "stream_options": {"include_usage": True}})
    assert "timings" in events[-1] and events[-1]["choices"] == []
    assert not any("timings" in e for e in events[:-1])
    events = server.events(path, {**body, "timings_per_token": True})
    told = [e["timings"]["predicted_n"] for e in events if "timings" in e]
    assert told == sorted(told) and len(told) >= 6 and told[0] == 1
    assert path == COMPLETIONS or "timings" not in events[0]  # the one with the role


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_progress(start_server, path):
    s = start_server("--batch-tokens", 32, "--itl-target-ms", 1000)
    text = "a" * 300
    body = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    events = s.events(path, {**body, "max_tokens": 2, "return_progress": True})
    told = [e["prompt_progress"] for e in events if "prompt_progress" in e]
    done = [p["processed"] for p in told]
    assert done[0] == told[0]["cache"] and done == sorted(set(done)) and done[-1] == told[0]["total"]
    assert len(done) > 2
    assert all("prompt_progress" not in e for e in s.events(path, {**body, "max_tokens": 2}))


def test_verbose(server):
    shown = server.json("POST", CHAT, {**ASK, "verbose": True})
    v = shown["__verbose"]
    assert v["prompt"].startswith("<|im_start|>user\nWhat is the capital")
    assert v["content"] == shown["choices"][0]["message"]["content"] and v["stop_type"] == "eos"
    assert v["generation_settings"]["temperature"] == 0
    for route, body, most in (
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}, 3),
            ("/v1/completions", {"prompt": "a"}, 16), ("/v1/completions", {"prompt": "a", "n_predict": 2}, 2)):
        g = server.json("POST", route, {**body, "verbose": True})["__verbose"]["generation_settings"]
        assert g["max_tokens"] == g["n_predict"] == most
    assert len(v["tokens"]) == v["tokens_predicted"] - 1  # what ended it is no part of it
    assert "__verbose" not in server.json("POST", CHAT, {**ASK, "verbose": False})
    events = server.events(CHAT, {**ASK, "verbose": True})
    assert events[-1]["__verbose"]["prompt"] == v["prompt"]


def test_the_answer_can_be_begun(server):
    def ask(status=200, **more):
        return server.json("POST", CHAT, {**body, **more}, status=status)

    turns = ASK["messages"] + [{"role": "assistant", "content": "The capital of"}]
    body = {"messages": turns, "temperature": 0, "continue_final_message": True}
    for more in ({}, {"add_generation_prompt": False}):
        assert ask(**more)["choices"][0]["message"]["content"] == " France is Paris."
    parts = [{"type": "text", "text": "The capital"}, {"type": "text", "text": " of"}]
    turns[-1]["content"] = parts
    assert ask()["choices"][0]["message"]["content"] == " France is Paris."
    shown = ask(verbose=True)["__verbose"]["prompt"]
    assert shown.endswith("<|im_start|>assistant\nThe capital of")
    assert ask(400, add_generation_prompt=True)["error"]["param"] == "continue_final_message"
    assert ask(400, messages=ASK["messages"])["error"]["param"] == "continue_final_message"
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns[-1] = {"role": "assistant", "content": "x", "tool_calls": [call]}
    assert ask(400)["error"]["param"] == "continue_final_message"
    turns[-1] = {"role": "assistant", "content": "<|im_end|>"}
    assert "<|im_end|>" in ask(verbose=True, max_tokens=1)["__verbose"]["prompt"][-12:]  # as text:
    assert ask(max_tokens=1)["usage"]["prompt_tokens"] > 20


def test_n_predict_means_what_fits(start_server):
    s = start_server("--context", 64)
    body = {"prompt": "Once", "ignore_eos": True}
    whole = s.json("POST", COMPLETIONS, {**body, "n_predict": 500})
    assert whole["usage"]["total_tokens"] == 64 and whole["choices"][0]["finish_reason"] == "length"
    s.json("POST", COMPLETIONS, {**body, "max_tokens": 500}, status=400)
    s.json("POST", COMPLETIONS, {**body, "max_tokens": 500, "n_predict": 5}, status=400)


def test_window_of_penalties(server):
    """Absent, penalties are OpenAI's and vLLM's; given, llama-server's."""
    body = {**TEXT, "prompt": [65, 66, 67], "repetition_penalty": 50, "max_tokens": 30, "return_tokens": True,
            "logit_bias": {str(t): 90 for t in range(65, 75)}}
    own, two, none = [server.json("POST", COMPLETIONS, {**body, **more})["choices"][0]["tokens"]
                      for more in ({}, {"repeat_last_n": 2}, {"repeat_last_n": 0})]
    assert own != two != none != own
    server.json("POST", COMPLETIONS, {**body, "repeat_last_n": -2}, status=400)


def test_models_for_all_clients(server):
    answer = server.json("GET", "/models")
    assert answer["data"] == server.json("GET", "/v1/models")["data"] and answer["models"]


def test_responses_tell_it_too(server):
    events = server.named_events("/v1/responses", {
        "input": "What is the capital of France?", "max_output_tokens": 8, "timings_per_token": True,
        "return_progress": True})
    told = [e for e in events if "prompt_progress" in e]
    assert told and all(e["type"] == "response.in_progress" for e in told)
    assert all("timings" in e for e in events if e["type"] == "response.output_text.delta")
    assert "timings" in events[-1] and events[-1]["response"]["usage"]
    numbers = [e["sequence_number"] for e in events]
    assert numbers == list(range(len(events)))


def test_defaults_of_the_server(start_server):
    """--temperature and its like stand in where a request says nothing, whatever it speaks."""
    seed = 2**63 - 1
    s = start_server("--temperature", 0, "--seed", seed, "--top-k", 7, "--top-p", 0.5, "--min-p", 0.25,
                     "--repeat-penalty", 1.25, "--repeat-last-n", -1)
    params = s.json("GET", "/props")["default_generation_settings"]["params"]
    used = s.json("POST", "/completion", {"prompt": "a", "n_predict": 1})["generation_settings"]
    for g in (params, used):
        assert (g["temperature"], g["seed"], g["top_k"], g["top_p"]) == (0, seed, 7, 0.5)
        assert (g["min_p"], g["repeat_penalty"], g["repeat_last_n"]) == (0.25, 1.25, -1)
    own = s.json("POST", "/completion", {"prompt": "a", "n_predict": 1, "temperature": 0.5, "seed": None})
    assert own["generation_settings"]["temperature"] == 0.5 and own["generation_settings"]["seed"] == seed
    seen = s.json("POST", CHAT, {"messages": ASK["messages"], "verbose": True, "max_tokens": 2})
    assert seen["__verbose"]["generation_settings"]["seed"] == seed
    texts = {s.json("POST", "/v1/messages", {**ASK, "temperature": None, "max_tokens": 9})["content"][0]["text"]
             for _ in range(3)}
    assert len(texts) == 1
