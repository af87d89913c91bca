"""Anthropic's /v1/messages, with its official client where that is installed, and field by field."""

import json
import socket
import time

import pytest

PATH = "/v1/messages"
ASK = [{"role": "user", "content": "What is the capital of France?"}]
PARIS = "The capital of France is Paris."
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
WEATHER = {"name": "get_weather", "description": "Current weather",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


def message(server, messages=ASK, **body):
    return server.json("POST", PATH, {"messages": messages, "max_tokens": 60, "temperature": 0, **body})


def events(server, messages=ASK, **body):
    """[(name, data)]"""
    found = server.named_events(PATH, {"messages": messages, "max_tokens": 60, "temperature": 0, **body})
    return [(e["type"], e) for e in found]


def count(server, **body):
    return server.json("POST", PATH + "/count_tokens", body)["input_tokens"]


def error(server, status, path=PATH, headers=None, **body):
    got, h, data = server.request("POST", path, body, headers=headers)
    assert got == status, (got, data)
    body = json.loads(data)
    assert body["type"] == "error" and set(body["error"]) == {"type", "message"}
    assert body["request_id"] == h["Request-Id"] == h["X-Request-Id"]
    return body["error"]


def test_fields_of_an_answer(server):
    a = message(server)
    assert a["id"].startswith("msg_") and a["type"] == "message" and a["role"] == "assistant"
    assert a["model"] == "weir-nano" and a["content"] == [{"type": "text", "text": PARIS}]
    assert a["stop_reason"] == "end_turn" and a["stop_sequence"] is None
    u = a["usage"]
    n = count(server, messages=ASK)
    assert u["input_tokens"] + u["cache_read_input_tokens"] == n
    assert u["cache_creation_input_tokens"] == 0 and u["output_tokens"] > 5
    again = message(server)["usage"]
    assert again["cache_read_input_tokens"] == n - 1 and again["input_tokens"] == 1
    cold = message(server, cache_prompt=False)["usage"]
    assert cold["cache_read_input_tokens"] == 0 and cold["input_tokens"] == n


def test_events_of_a_stream(server):
    whole = message(server)
    e = events(server)
    names = [name for name, _ in e]
    n_text = names.count("content_block_delta")
    assert names == ["message_start", "content_block_start", "ping", *["content_block_delta"] * n_text,
                     "content_block_stop", "message_delta", "message_stop"]
    start = e[0][1]["message"]
    assert start["content"] == [] and start["stop_reason"] is None and start["id"].startswith("msg_")
    assert start["usage"]["output_tokens"] == 0 and start["usage"]["input_tokens"] > 0
    assert e[1][1]["content_block"] == {"type": "text", "text": ""}
    deltas = [d for name, d in e if name == "content_block_delta"]
    assert all(d["index"] == 0 and d["delta"]["type"] == "text_delta" for d in deltas)
    assert "".join(d["delta"]["text"] for d in deltas) == whole["content"][0]["text"]
    assert e[-2][1]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert e[-2][1]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_why_it_stopped(server):
    a = message(server, stop_sequences=["xyz", " of"])
    assert (a["stop_reason"], a["stop_sequence"]) == ("stop_sequence", " of")
    assert a["content"] == [{"type": "text", "text": "The capital"}]
    for alike in ([" of"], " of"):
        a = message(server, stop=alike)  # as other routes call it
        assert (a["stop_reason"], a["stop_sequence"]) == ("stop_sequence", " of")
    assert message(server, max_tokens=3)["stop_reason"] == "max_tokens"
    e = events(server, stop_sequences=["Par"])
    assert e[-2][1]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "Par"}
    assert message(server, stop_sequences=["The"])["content"] == []
    assert [n for n, _ in events(server, stop_sequences=["The"])] == [
        "message_start", "message_delta", "message_stop"]


def test_more_tokens_than_fit_are_what_fits(server):
    assert message(server, max_tokens=1000000)["stop_reason"] == "end_turn"


def test_the_context_as_a_limit(start_server):
    """It is told apart from max_tokens."""
    server = start_server("--context", 1000)
    long = [{"role": "user", "content": "word " * 500}]
    a = message(server, long, max_tokens=1000000, ignore_eos=True)
    n = server.json("GET", "/v1/models")["data"][0]["max_input_tokens"]
    assert a["stop_reason"] == "model_context_window_exceeded"
    assert message(server, long, max_tokens=1e6, ignore_eos=True)["stop_reason"] == a["stop_reason"]
    assert a["usage"]["output_tokens"] == n - count(server, messages=long)
    assert message(server, long, max_tokens=3, ignore_eos=True)["stop_reason"] == "max_tokens"


def test_what_the_system_says_in_between(server):
    talk = [*ASK, {"role": "assistant", "content": PARIS}, {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "And of Spain?"}]
    n = server.json("POST", "/v1/chat/completions/input_tokens", {"messages": talk})["input_tokens"]
    assert count(server, messages=talk) == n > count(server, messages=[m for m in talk if m["role"] != "system"])
    talk[2]["content"] = [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief.", "cache_control": None}]
    assert count(server, messages=talk) == n
    message(server, talk)


def test_threads_are_refused_as_its_clients_expect(server):
    """They send the whole conversation then; without it they would send its newest part only."""
    for thread in ({"type": "create"}, {"type": "continue", "previous_message_id": "msg_x"}, 1):
        status, _, data = server.request("POST", PATH, {"messages": ASK, "max_tokens": 1, "thread": thread})
        e = json.loads(data)["error"]
        assert status == 400 and e["type"] == "invalid_request_error" and "thread" in e["message"]
        assert e["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    message(server, thread=None)


def test_effort_is_a_variable_of_the_template(start_server):
    s = start_server("--chat-template", "{{ {'low': 'a', 'medium': 'a b', 'high': 'a b c'}.get(reasoning_effort, '') }}"
                                        "{% if enable_thinking == false %} off off off{% endif %}{{ messages[-1].content }}")

    def n(**body):
        return s.json("POST", PATH + "/count_tokens", {"messages": ASK, **body})["input_tokens"]

    efforts = {name: n(chat_template_kwargs={"reasoning_effort": name}) for name in ("low", "medium", "high")}
    assert len({n(), *efforts.values()}) == 4
    for given, used in (("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "high"), ("max", "high")):
        assert n(output_config={"effort": given}) == efforts[used], given
        assert n(output_config={"effort": given}, chat_template_kwargs=None) == efforts[used], given
    assert n(output_config={"effort": None}) == n(output_config={}) == n(output_config=None) == n()
    off = n(thinking={"type": "disabled"})
    assert n(thinking={"type": "disabled"}, chat_template_kwargs=None) == off
    answer = s.json("POST", "/v1/responses/input_tokens", {"input": "x", "reasoning": {"effort": "low"}, "chat_template_kwargs": None})
    assert answer == s.json("POST", "/v1/responses/input_tokens", {"input": "x", "reasoning": {"effort": "low"}})
    assert n(thinking={"type": "between_tools"}) == off > n() == n(thinking={"type": "adaptive", "display": "omitted"})
    chat = s.json("POST", "/v1/chat/completions/input_tokens", {"messages": ASK, "reasoning_effort": "none"})
    assert chat["input_tokens"] == off


def test_routes_below_it_answer_in_its_shape(server):
    for path in (PATH + "/batches", PATH + "/batches/x/results"):
        assert error(server, 404, path)["type"] == "not_found_error"


def test_system_and_blocks(server):
    plain = count(server, messages=ASK, system="Be brief.")
    assert plain > count(server, messages=ASK)
    blocks = [{"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "brief."}]
    assert count(server, messages=ASK, system=blocks) == plain
    parts = [{"role": "user", "content": [{"type": "text", "text": "What is the capital "},
                                          {"type": "text", "text": "of France?"}]}]
    assert message(server, parts)["content"] == [{"type": "text", "text": PARIS}]
    one, two = ([{"role": "user", "content": c}, *ASK] for c in ("", []))
    assert count(server, messages=one) == count(server, messages=two) > count(server, messages=ASK)
    talk = [*ASK, {"role": "assistant", "content": PARIS}, {"role": "user", "content": "And of Spain?"}]
    assert message(server, talk)["usage"]["cache_read_input_tokens"] > 0


def test_the_same_prompt_as_the_chat_route(server):
    for extra in ({}, {"system": "You are brief."}):
        system = [{"role": "system", "content": extra["system"]}] if extra else []
        chat = server.json("POST", "/v1/chat/completions", {"messages": system + ASK, "temperature": 0})
        a = message(server, **extra)
        assert a["content"][0]["text"] == chat["choices"][0]["message"]["content"]
        assert count(server, messages=ASK, **extra) == chat["usage"]["prompt_tokens"]


def test_an_answer_that_the_client_began(server):
    begun = [*ASK, {"role": "assistant", "content": "The capital of"}]
    a = message(server, begun)
    assert a["content"] == [{"type": "text", "text": " France is Paris."}]
    assert count(server, messages=begun) == count(server, messages=ASK) + 3
    chat = {"messages": begun, "continue_final_message": True}
    n = server.json("POST", "/v1/chat/completions/input_tokens", chat)["input_tokens"]
    assert count(server, messages=begun) == n
    assert count(server, messages=begun, continue_final_message=False) > count(server, messages=begun) + 3
    assert message(server, [*ASK, {"role": "assistant", "content": ""}])["content"][0]["text"] == PARIS
    halves = [*ASK, {"role": "assistant", "content": "The"}, {"role": "assistant", "content": "The capital of"}]
    assert message(server, halves)["type"] == "message"


def test_an_answer_that_cannot_have_begun_so(start_server):
    """As on the chat route: behind a template that opens reasoning, and in formats with a frame, the
    text would stand where the model does not answer."""
    begun = [*ASK, {"role": "assistant", "content": "The capital of"}]
    thinks = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n{{ '<think>\\n' }}{% endif %}{# </think> #}")
    for flags, why in ((("--chat-template", thinks), "reason first ('thinking'"), (("--tool-format", "harmony"), "format")):
        server = start_server(*flags)
        for path in (PATH, PATH + "/count_tokens"):
            said = error(server, 400, path, messages=begun, max_tokens=9)["message"]
            assert why in said and "last message" in said, said
        chat = {"messages": begun, "continue_final_message": True}
        assert why.split(" (")[0] in server.json("POST", "/v1/chat/completions", chat, status=400)["error"]["message"]
        assert message(server, ASK)["type"] == "message"


def test_tools_there_and_back(server):
    ask = [{"role": "user", "content": "What is the weather in Paris?"}]
    a = message(server, ask, tools=[WEATHER])
    assert a["stop_reason"] == "tool_use", a
    use = a["content"][-1]
    assert use["type"] == "tool_use" and use["name"] == "get_weather" and use["id"].startswith("toolu_")
    assert use["input"] == {"city": "Paris"}
    e = events(server, ask, tools=[WEATHER], tool_choice={"type": "auto"})
    begin = next(d for n, d in e if n == "content_block_start")
    assert begin["content_block"]["input"] == {} and begin["content_block"]["name"] == "get_weather"
    text = "".join(d["delta"]["partial_json"] for n, d in e if n == "content_block_delta")
    assert json.loads(text) == use["input"]
    assert e[-2][1]["delta"]["stop_reason"] == "tool_use"
    result = [*ask, {"role": "assistant", "content": a["content"]},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "Sunny, 25°C"},
                                           {"type": "text", "text": "So?"}]}]
    more = count(server, messages=result, tools=[WEATHER])
    assert more > count(server, messages=ask, tools=[WEATHER]) + 10
    assert message(server, result, tools=[WEATHER])["type"] == "message"
    as_blocks = json.loads(json.dumps(result))
    as_blocks[2]["content"][0]["content"] = [{"type": "text", "text": "Sunny, "}, {"type": "text", "text": "25°C"}]
    assert count(server, messages=as_blocks, tools=[WEATHER]) == more


def test_a_call_that_a_limit_cut_is_no_call(server):
    ask = [{"role": "user", "content": "What is the weather in Paris?"}]
    n = message(server, ask, tools=[WEATHER])["usage"]["output_tokens"]
    a = message(server, ask, tools=[WEATHER], max_tokens=n - 6)
    assert a["stop_reason"] == "max_tokens" and a["content"][-1]["input"] == {}


def test_tools_that_the_provider_runs_are_left_out(server):
    """Those before and behind them are offered as ever."""
    ask = [{"role": "user", "content": "What is the weather in Paris?"}]
    hosted = [SEARCH, *({"type": t, "name": "x"} for t in ("web_fetch_20250910", "code_execution_20250825",
                                                           "tool_search_tool_regex_20251119", "mcp_toolset"))]
    n = count(server, messages=ask, tools=[WEATHER])
    assert count(server, messages=ask, tools=[*hosted, WEATHER]) == n == count(server, messages=ask, tools=[WEATHER, SEARCH])
    assert count(server, messages=ask, tools=hosted) == count(server, messages=ask)
    a = message(server, ask, tools=[*hosted, WEATHER], tool_choice={"type": "any"})
    assert a["content"][-1]["name"] == "get_weather"
    assert message(server, ASK, tools=hosted)["stop_reason"] == "end_turn"


def test_a_wrong_schema_is_found_where_the_client_has_it(server):
    wrong = {"name": "wrong", "input_schema": {"type": "nothing"}, "strict": True}
    said = error(server, 400, messages=ASK, max_tokens=1, tools=[SEARCH, WEATHER, wrong])
    assert 'at "/tools/2/input_schema/type": ' in json.dumps(said).replace('\\"', '"'), said


def test_blocks_of_what_a_provider_ran_are_left_out(server):
    said = [{"type": "text", "text": "Let me see. "}, {"type": "text", "text": "Paris."}]
    ran = [{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
           {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "x"}]},
           {"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_1", "content": {}},
           {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {}},
           {"type": "mcp_tool_use", "id": "a", "name": "b", "server_name": "c", "input": {}},
           {"type": "mcp_tool_result", "tool_use_id": "a", "content": []}]
    talk = [*ASK, {"role": "assistant", "content": [said[0], *ran, said[1]]}, *ASK]
    plain = [*ASK, {"role": "assistant", "content": said}, *ASK]
    assert count(server, messages=talk) == count(server, messages=plain)
    assert message(server, talk)["content"] == message(server, plain)["content"]


def test_none_of_the_tools(server):
    ask = [{"role": "user", "content": "What is the weather in Paris?"}]
    a = message(server, ask, tools=[WEATHER], tool_choice={"type": "none"})
    assert all(b["type"] == "text" for b in a["content"])
    assert count(server, messages=ask, tools=[WEATHER], tool_choice={"type": "none"}) == count(server, messages=ask)


def test_fields_that_are_taken(server):
    a = message(server, metadata={"user_id": "me"}, service_tier="auto", top_k=1, top_p=0.9, seed=3,
                thinking={"type": "disabled"}, temperature=1, model="claude-of-any-kind")
    assert a["content"][0]["text"] == PARIS and a["model"] == "weir-nano"
    message(server, thinking={"type": "enabled", "budget_tokens": 1024}, inference_geo="eu")
    kept = {"type": "clear_thinking_20251015", "keep": "all"}
    for edits in ({}, {"edits": []}, {"edits": [kept]}, {"edits": [kept, kept]}):  # as Claude Code sends it
        message(server, context_management=edits)
    message(server, [*ASK, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"}, {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": PARIS}]}, {"role": "user", "content": "Thanks"}])


@pytest.mark.parametrize("word, body", [
    ("max_tokens", {"max_tokens": None}), ("max_tokens", {"max_tokens": 0}), ("max_tokens", {"max_tokens": "9"}),
    ("messages", {"messages": None}), ("messages", {"messages": []}), ("messages", {"messages": "hi"}),
    ("must come before it", {"messages": [{"role": "assistant", "content": "I"}]}),
    ("must come before it", {"messages": [{"role": "assistant", "content": "I"}], "continue_final_message": True}),
    ("must come before it", {"system": "Be brief.", "messages": [{"role": "assistant", "content": "I"}]}),
    ("must come before it", {"messages": [{"role": "system", "content": "a"}, {"role": "assistant", "content": "I"}]}),
    ("messages[0]", {"messages": [1]}), ("messages[0].role", {"messages": [{"role": "tool", "content": "a"}]}),
    ("messages[1].content", {"messages": [*ASK, {"role": "system"}]}),
    ("messages[1].content", {"messages": [*ASK, {"role": "system", "content": 1}]}),
    ("messages[1].content[0]", {"messages": [*ASK, {"role": "system", "content": [{"type": "image"}]}]}),
    ("messages[0].content[0].content[0]", {"messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": {}}]}]}]}),
    ("messages[0].content[0].content", {"messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "a", "content": {"type": "text"}}]}]}),
    ("output_config", {"output_config": "low"}), ("output_config.effort", {"output_config": {"effort": 1}}),
    ("output_config.format", {"output_config": {"format": {"type": "json"}}}), ("output_format", {"output_format": "json"}),
    ("compaction", {"compaction": {"type": "auto"}}), ("moderation", {"moderation": {"model": "x"}}),
    ("messages[0].content", {"messages": [{"role": "user"}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": 1}]}),
    ("messages[0].content[0]", {"messages": [{"role": "user", "content": [1]}]}),
    ("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
    ("image input is not supported", {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
    ("document", {"messages": [{"role": "user", "content": [{"type": "document"}]}]}),
    ("tool_use_id", {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}),
    ("'input'", {"messages": [*ASK, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b"}]}, *ASK]}),
    ("continued", {"messages": [*ASK, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]}),
    ("system", {"system": 1}), ("system[0]", {"system": [{"type": "image"}]}),
    ("stop_sequences", {"stop_sequences": "a"}), ("stop_sequences", {"stop_sequences": ["a"] * 17}),
    ("stop", {"stop_sequences": [""]}), ("stop", {"stop_sequences": [1]}), ("'stop[0]'", {"stop": [1]}),
    ("'stop' and 'stop_sequences'", {"stop": "a", "stop_sequences": ["a"]}),
    ("temperature", {"temperature": 3}), ("top_p", {"top_p": 2}), ("top_k", {"top_k": "a"}),
    ("tools", {"tools": {}}), ("tools[0]", {"tools": [1]}), ("tools[0]", {"tools": [{"name": "a"}]}),
    ("bash", {"tools": [{"type": "bash_20250124", "name": "bash"}]}), ("tools[0].type", {"tools": [{"type": 1}]}),
    ("web_search", {"tools": [SEARCH, WEATHER], "tool_choice": {"type": "tool", "name": "web_search"}}),
    ("tool_choice", {"tools": [SEARCH], "tool_choice": {"type": "any"}}),
    ("tools[1]", {"tools": [SEARCH, {**WEATHER, "name": "a b"}]}),
    ("tools[1]", {"tools": [SEARCH, {"type": "web_search"}]}),
    ("tool_choice", {"tools": [WEATHER], "tool_choice": "auto"}),
    ("tool_choice", {"tools": [WEATHER], "tool_choice": {"type": "some"}}),
    ("tool_choice", {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "other"}}),
    ("thinking", {"thinking": True}), ("thinking", {"thinking": {"type": "maybe"}}),
    ("context_management", {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": 2}]}}),
    ("context_management", {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}),
    ("context_management", {"context_management": {"edits": {}}}), ("context_management", {"context_management": "x"}),
    ("context_management", {"context_management": {"edits": [], "more": 1}}),
    ("mcp_servers", {"mcp_servers": [{"url": "x"}]}), ("container", {"container": "x"}), ("stream", {"stream": 1}),
])
def test_wrong_values(server, word, body):
    e = error(server, 400, **{"messages": ASK, "max_tokens": 1, **body})
    assert e["type"] == "invalid_request_error" and word in e["message"], e


def test_errors_of_the_transport_in_the_same_shape(start_server):
    server = start_server("--api-key", "secret", "--max-body", "1K", "--context", "64")
    e = error(server, 401, messages=ASK, max_tokens=1)
    assert e["type"] == "authentication_error"
    error(server, 401, headers={"X-Api-Key": "wrong"}, messages=ASK, max_tokens=1)
    for h in ({"X-Api-Key": "secret", "anthropic-version": "2023-06-01"}, {"Authorization": "Bearer secret"}):
        assert server.request("POST", PATH, {"messages": ASK, "max_tokens": 1}, headers=h)[0] == 200
    key = {"X-Api-Key": "secret"}
    status, head, data = server.request("POST", PATH, {"messages": ASK, "x": "x" * 2000}, headers=key)
    assert status == 413 and json.loads(data)["error"]["type"] == "request_too_large"
    assert head["Request-Id"] == head["X-Request-Id"] == json.loads(data)["request_id"]
    status, head, _ = server.request("POST", "/v1/completions", {"x": "x" * 2000}, headers=key)
    assert status == 413 and head["X-Request-Id"] and "Request-Id" not in head
    long = [{"role": "user", "content": "word " * 100}]
    n = server.json("POST", PATH + "/count_tokens", {"messages": long}, headers=key)["input_tokens"]
    e = error(server, 400, headers=key, messages=long, max_tokens=1)
    assert e["message"] == f"prompt is too long: {n} tokens > 63 maximum"  # which its clients look for
    status, _, data = server.request("GET", PATH, headers=key)
    assert status == 405 and json.loads(data)["type"] == "error"
    # health needs no key, and other routes keep their shape
    assert server.request("GET", "/health")[0] == 200
    assert "code" in json.loads(server.request("POST", "/v1/completions", {})[2])["error"]


def test_a_full_queue_is_an_overload(start_server):
    """Filled by answers that would take a minute; when their client has left there is room."""
    server = start_server("--max-running", "1", "--max-queue", "99")
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"prompt": "a", "n": 100, "max_tokens": 2000, "ignore_eos": True, "stream": True}).encode()
    with socket.create_connection((host, int(port))) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert s.recv(100).startswith(b"HTTP/1.1 200")
        status, headers, data = server.request("POST", PATH, {"messages": ASK, "max_tokens": 1})
        assert status == 529 and int(headers["Retry-After"]) >= 1
        assert json.loads(data)["error"]["type"] == "overloaded_error"
    end = time.monotonic() + 30
    while server.request("POST", PATH, {"messages": ASK, "max_tokens": 1})[0] != 200:
        assert time.monotonic() < end


def test_characters_are_never_cut(server):
    ask = [{"role": "user", "content": "🤗媽" * 8}]
    for n in (1, 2, 3, 5, 9):
        whole = message(server, ask, max_tokens=n, ignore_eos=True)["content"]
        deltas = [d["delta"]["text"] for name, d in events(server, ask, max_tokens=n, ignore_eos=True)
                  if name == "content_block_delta"]
        assert "".join(deltas) == "".join(b["text"] for b in whole)


# --- the official client ---


GREEDY = {"temperature": 0}  # its newest version has no argument of that name


@pytest.fixture(scope="module")
def client(server):
    anthropic = pytest.importorskip("anthropic", reason="Anthropic's client is not installed")
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def test_client(client):
    a = client.messages.create(model="any", max_tokens=50, extra_body=GREEDY, messages=ASK)
    assert a.content[0].text == PARIS and a.stop_reason == "end_turn" and a.usage.output_tokens > 0
    assert a._request_id
    n = client.messages.count_tokens(model="any", messages=ASK, system="Be brief.")
    assert n.input_tokens > a.usage.input_tokens


def test_client_stream(client):
    with client.messages.stream(model="any", max_tokens=50, extra_body=GREEDY, messages=ASK) as s:
        assert "".join(s.text_stream) == PARIS
        final = s.get_final_message()
    assert final.content[0].text == PARIS and final.stop_reason == "end_turn"
    whole = client.messages.create(model="any", max_tokens=50, extra_body=GREEDY, messages=ASK)
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_client_tools(client):
    ask = [{"role": "user", "content": "What is the weather in Paris?"}]
    with client.messages.stream(model="any", max_tokens=60, extra_body=GREEDY, messages=ask, tools=[WEATHER]) as s:
        final = s.get_final_message()
    assert final.stop_reason == "tool_use" and final.content[-1].input == {"city": "Paris"}
    back = client.messages.create(
        model="any", max_tokens=30, extra_body=GREEDY, tools=[WEATHER],
        messages=[*ask, {"role": "assistant", "content": final.content}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": final.content[-1].id, "content": "Sunny"}]}])
    assert back.type == "message"


def test_client_errors(client):
    import anthropic
    with pytest.raises(anthropic.BadRequestError) as e:
        client.messages.create(model="any", max_tokens=5, messages=ASK, extra_body={"temperature": 7})
    assert "temperature" in str(e.value) and e.value.body["error"]["type"] == "invalid_request_error"
