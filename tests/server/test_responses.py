"""OpenAI's /v1/responses, with the official client where that is installed, and field by field."""

import json

import pytest

PATH = "/v1/responses"
ASK = "What is the capital of France?"
PARIS = "The capital of France is Paris."
WEATHER = {"type": "function", "name": "get_weather", "description": "Current weather",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


def respond(server, input=ASK, **body):
    return server.json("POST", PATH, {"input": input, "temperature": 0, "max_output_tokens": 60, **body})


def events(server, input=ASK, **body):
    found = server.named_events(PATH, {"input": input, "temperature": 0, "max_output_tokens": 60, **body})
    assert [e["sequence_number"] for e in found] == list(range(len(found)))
    return found


def text_of(response):
    return "".join(p["text"] for item in response["output"] if item["type"] == "message" for p in item["content"])


def tokens(server, **body):
    return server.json("POST", PATH + "/input_tokens", body)["input_tokens"]


def without_ids(v):
    """Two answers to one question differ in these alone."""
    if isinstance(v, dict):
        return {k: without_ids(x) for k, x in v.items() if k not in ("id", "created_at", "completed_at", "call_id", "usage")}
    return [without_ids(x) for x in v] if isinstance(v, list) else v


def test_fields_of_an_answer(server):
    r = respond(server, metadata={"a": "b"}, user="me", instructions="Be brief.")
    assert r["id"].startswith("resp_") and r["object"] == "response" and r["status"] == "completed"
    assert r["model"] == "weir-nano" and r["error"] is None and r["incomplete_details"] is None
    item = r["output"][0]
    assert item["type"] == "message" and item["id"].startswith("msg_") and item["status"] == "completed"
    assert item["role"] == "assistant" and item["content"][0]["type"] == "output_text"
    assert item["content"][0]["annotations"] == [] and item["content"][0]["logprobs"] == []
    assert (r["metadata"], r["user"], r["instructions"]) == ({"a": "b"}, "me", "Be brief.")
    assert (r["temperature"], r["max_output_tokens"], r["store"]) == (0, 60, True)
    assert r["previous_response_id"] is None and r["tools"] == [] and r["text"]["format"] == {"type": "text"}
    u = r["usage"]
    assert u["input_tokens"] == tokens(server, input=ASK, instructions="Be brief.")
    assert u["total_tokens"] == u["input_tokens"] + u["output_tokens"] and u["output_tokens"] > 0
    again = respond(server, instructions="Be brief.")["usage"]
    assert again["input_tokens_details"]["cached_tokens"] == u["input_tokens"] - 1
    assert again["output_tokens_details"] == {"reasoning_tokens": 0}


def test_events_of_a_stream(server):
    whole = respond(server)
    e = events(server)
    types = [x["type"] for x in e]
    n = types.count("response.output_text.delta")
    assert types == ["response.created", "response.in_progress", "response.output_item.added",
                     "response.content_part.added", *["response.output_text.delta"] * n,
                     "response.output_text.done", "response.content_part.done",
                     "response.output_item.done", "response.completed"]
    for x in e[:2]:
        assert x["response"]["status"] == "in_progress" and x["response"]["output"] == []
        assert x["response"]["usage"] is None
    item = e[2]["item"]
    assert item["status"] == "in_progress" and item["content"] == []
    assert all(x["item_id"] == item["id"] for x in e[3:-2])
    deltas = "".join(x["delta"] for x in e if "delta" in x)
    done = e[-1]["response"]
    assert deltas == e[-4]["text"] == e[-3]["part"]["text"] == text_of(done) == PARIS
    assert e[-2]["item"] == done["output"][0]
    assert without_ids(done) == without_ids(whole)


def test_reasoning_that_comes_back_is_all_there(start_server):
    """Before a message and before a call behind it, which is the same message of the chat."""
    s = start_server("--chat-template", "{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }}|"
                                        "{{ m.tool_calls | length if m.tool_calls }};{% endfor %}")

    def n(*items):
        return s.json("POST", PATH + "/input_tokens", {"input": [{"role": "user", "content": "x"}, *items]})["input_tokens"]

    def thought(text):
        return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}

    says = {"role": "assistant", "content": "so"}
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    one, two = "first of all a cat", " and then a dog"
    want = s.json("POST", "/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "x"}, {
        "role": "assistant", "content": "so", "reasoning_content": one + two, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]})["input_tokens"]
    assert n(thought(one), says, thought(two), call) == want
    assert n(says, thought(one), thought(two), call) == want == n(thought(one + two), says, call)
    assert n(says, thought(two), call) < want


def test_it_ends_at_a_limit(server):
    r = respond(server, max_output_tokens=3)
    assert r["status"] == "incomplete" and r["incomplete_details"] == {"reason": "max_output_tokens"}
    assert r["output"][0]["status"] == "incomplete" and r["usage"]["output_tokens"] == 3
    last = events(server, max_output_tokens=3)[-1]
    assert last["type"] == "response.incomplete" and last["response"]["status"] == "incomplete"
    for name in ("max_tokens", "max_completion_tokens", "n_predict"):  # as other routes call it
        r = respond(server, **{"max_output_tokens": None, name: 3})
        assert (r["status"], r["usage"]["output_tokens"], r["max_output_tokens"]) == ("incomplete", 3, 3)
        assert respond(server, **{"max_output_tokens": 2, name: 3})["usage"]["output_tokens"] == 2
        e = server.json("POST", PATH, {"input": ASK, name: "x"}, status=400)["error"]
        assert e["param"] == name


def test_items_are_messages(server):
    n = tokens(server, input=ASK)
    for same in ([{"role": "user", "content": ASK}], [{"type": "message", "role": "user", "content": ASK}],
                 [{"role": "user", "content": [{"type": "input_text", "text": "What is the capital "},
                                               {"type": "input_text", "text": "of France?"}]}]):
        assert tokens(server, input=same) == n
        assert text_of(respond(server, same)) == PARIS
    chat = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": ASK},
            {"role": "assistant", "content": [{"type": "output_text", "text": PARIS}]},
            {"role": "user", "content": "And of Spain?"}]
    as_chat = [{"role": m["role"], "content": PARIS if m["role"] == "assistant" else m["content"]} for m in chat]
    want = server.json("POST", "/v1/chat/completions/input_tokens", {"messages": as_chat})["input_tokens"]
    assert tokens(server, input=chat) == want
    assert tokens(server, input=chat[1:], instructions="Be brief.") == want


def test_the_next_turn_goes_on(server):
    one = respond(server, instructions="Be brief.")
    two = respond(server, "And of Spain?", previous_response_id=one["id"])
    talk = [{"role": "user", "content": ASK}, {"role": "assistant", "content": PARIS},
            {"role": "user", "content": "And of Spain?"}]
    assert two["previous_response_id"] == one["id"]
    assert two["usage"]["input_tokens"] == tokens(server, input=talk)  # instructions are not kept
    assert text_of(two) == text_of(respond(server, talk))
    three = events(server, "Thanks", previous_response_id=two["id"])[-1]["response"]
    talk += [{"role": "assistant", "content": text_of(two)}, {"role": "user", "content": "Thanks"}]
    assert three["usage"]["input_tokens"] == tokens(server, input=talk)
    four = respond(server, "Bye", previous_response_id=three["id"])
    talk += [{"role": "assistant", "content": text_of(three)}, {"role": "user", "content": "Bye"}]
    assert four["usage"]["input_tokens"] == tokens(server, input=talk)


def test_answers_are_kept_until_deleted(server):
    r = respond(server, metadata={"k": "v"})
    assert server.json("GET", f"{PATH}/{r['id']}") == r
    streamed = events(server)[-1]["response"]
    assert server.json("GET", f"{PATH}/{streamed['id']}") == streamed
    assert server.json("DELETE", f"{PATH}/{r['id']}") == {"id": r["id"], "object": "response", "deleted": True}
    for method in ("GET", "DELETE"):
        gone = server.json(method, f"{PATH}/{r['id']}", status=404)["error"]
        assert r["id"] in gone["message"] and gone["code"] == "not_found"
    gone = server.json("POST", PATH, {"input": "x", "previous_response_id": r["id"]}, status=404)["error"]
    assert gone["param"] == "previous_response_id" and r["id"] in gone["message"]
    secret = respond(server, store=False)
    assert secret["store"] is False
    server.json("GET", f"{PATH}/{secret['id']}", status=404)
    server.json("POST", PATH, {"input": "x", "previous_response_id": secret["id"]}, status=404)


def test_when_it_was_completed(server):
    a = respond(server)
    assert 0 <= a["completed_at"] - a["created_at"] < 60
    assert server.json("GET", f"{PATH}/{a['id']}")["completed_at"] == a["completed_at"]
    assert respond(server, max_output_tokens=2)["completed_at"] is None
    e = events(server)
    assert e[0]["response"]["completed_at"] is None and e[-1]["response"]["completed_at"] is not None


def test_what_a_kept_answer_is_not_asked_for(server):
    """Nothing looks like an answer without text, or like an answer that is gone."""
    path = f"{PATH}/{respond(server)['id']}"
    for query in ("?stream=true", "?stream=1", "?stream=x"):
        assert server.json("GET", path + query, status=400)["error"]["param"] == "stream"
    assert server.json("GET", path + "?stream=false")["object"] == "response"
    for method, below in (("GET", "/output_items"), ("POST", "/cancel")):
        error = server.json(method, path + below, status=404)["error"]
        assert error["message"].startswith("there is no route")


def listed(server, id, query="", status=200):
    return server.json("GET", f"{PATH}/{id}/input_items{query}", status=status)


def test_the_input_of_a_kept_answer(server):
    """A text is a message; items are as they came, each with an id."""
    one = respond(server)
    page = listed(server, one["id"])
    [item] = page["data"]
    assert item["id"].startswith("msg_")
    assert item == {"id": item["id"], "type": "message", "status": "completed", "role": "user",
                    "content": [{"type": "input_text", "text": ASK}]}
    assert page == {"object": "list", "data": [item], "first_id": item["id"], "last_id": item["id"], "has_more": False}
    assert listed(server, one["id"]) == page  # ids stay
    call = {"type": "function_call", "id": "fc_mine", "call_id": "a", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "a", "output": "x\u00e9"}
    items = [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
             {"role": "assistant", "content": "b"}, call, result, {**call, "call_id": "b"}, {**result, "call_id": "b"}]
    got = listed(server, respond(server, items)["id"], "?order=asc")["data"]
    assert [without_ids(i) for i in got] == [
        {"type": "message", "status": "completed", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "message", "status": "completed", "role": "assistant",
         "content": [{"type": "output_text", "text": "b", "annotations": []}]},
        *[{**without_ids(i), "status": "completed"} for i in items[2:]]]
    assert [i["id"].split("_")[0] for i in got] == ["msg", "msg", "fc", "fco", "fc", "fco"]
    assert got[2]["id"] == "fc_mine" and len({i["id"] for i in got}) == 6  # what is there twice has another


def test_the_input_of_a_later_answer(server):
    """What came before it, answers too; and that stays when they go."""
    one = respond(server)
    two = respond(server, "And of Spain?", previous_response_id=one["id"])
    three = respond(server, "Thanks", previous_response_id=two["id"])
    first = listed(server, one["id"])["data"]
    got = listed(server, two["id"], "?order=asc")["data"]
    assert got[0] == first[0] and got[1] == one["output"][0] and got[2]["content"][0]["text"] == "And of Spain?"
    server.json("DELETE", f"{PATH}/{one['id']}")
    server.json("DELETE", f"{PATH}/{two['id']}")
    listed(server, one["id"], status=404)
    all = listed(server, three["id"])["data"]
    assert all[::-1][:4] == [*got, two["output"][0]] and len(all) == 5


def test_pages_of_an_input(server):
    r = respond(server, [{"role": "user", "content": str(i)} for i in range(25)], max_output_tokens=1)
    asc = listed(server, r["id"], "?order=asc&limit=100")
    ids = [i["id"] for i in asc["data"]]
    assert [i["content"][0]["text"] for i in asc["data"]] == [str(i) for i in range(25)] and not asc["has_more"]
    page = listed(server, r["id"])
    assert [i["id"] for i in page["data"]] == ids[:4:-1] and page["has_more"]
    assert (page["first_id"], page["last_id"]) == (ids[24], ids[5])
    rest = listed(server, r["id"], "?after=" + page["last_id"])
    assert [i["id"] for i in rest["data"]] == ids[4::-1] and not rest["has_more"]
    page = listed(server, r["id"], f"?order=asc&limit=2&after={ids[3]}")
    assert [i["id"] for i in page["data"]] == ids[4:6] and page["has_more"]
    end = listed(server, r["id"], "?after=" + ids[0])
    assert end == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    for name, value in (("limit", "0"), ("limit", "101"), ("limit", "x"), ("limit", ""), ("order", "up"), ("after", "x")):
        assert listed(server, r["id"], f"?{name}={value}", status=400)["error"]["param"] == name
    status, _, data = server.request("HEAD", f"{PATH}/{r['id']}/input_items")
    assert status == 200 and not data


def test_no_input_of_what_is_not_kept(server):
    for id in (respond(server, store=False)["id"], "resp_x", "x" * 100):
        error = listed(server, id, status=404)["error"]
        assert error["code"] == "not_found" and "there is no response" in error["message"]
    r = respond(server)
    bare = server.json("GET", f"/responses/{r['id']}/input_items")
    assert bare == listed(server, r["id"])
    assert server.request("POST", f"{PATH}/{r['id']}/input_items", {})[0] == 405


def test_the_oldest_answers_go(start_server):
    """At most 1,024 are kept."""
    server = start_server()
    ids = [respond(server, "a", max_output_tokens=1)["id"] for _ in range(1030)]
    kept = [i for i in ids if server.request("GET", f"{PATH}/{i}")[0] == 200]
    assert kept == ids[-1024:]


def test_tools_there_and_back(server):
    ask = "What is the weather in Paris?"
    r = respond(server, ask, tools=[WEATHER])
    assert r["status"] == "completed" and r["tools"] == [WEATHER], r
    call = r["output"][-1]
    assert call["type"] == "function_call" and call["name"] == "get_weather" and call["status"] == "completed"
    assert call["id"].startswith("fc_") and call["call_id"].startswith("call_")
    assert json.loads(call["arguments"]) == {"city": "Paris"}
    e = events(server, ask, tools=[WEATHER], tool_choice="auto")
    assert without_ids(e[-1]["response"]) == without_ids({**r, "tool_choice": "auto"})
    deltas = [x for x in e if x["type"] == "response.function_call_arguments.delta"]
    done = next(x for x in e if x["type"] == "response.function_call_arguments.done")
    assert "".join(x["delta"] for x in deltas) == done["arguments"] == call["arguments"]
    assert done["name"] == "get_weather" and "content_index" not in done
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny, 25°C"}
    back = respond(server, [result], previous_response_id=r["id"], tools=[WEATHER])
    by_hand = [{"role": "user", "content": ask}, call, result]
    assert back["usage"]["input_tokens"] == tokens(server, input=by_hand, tools=[WEATHER])
    assert back["status"] in ("completed", "incomplete")


def test_log_probabilities(server):
    r = respond(server, include=["message.output_text.logprobs"], top_logprobs=2)
    got = r["output"][0]["content"][0]["logprobs"]
    assert r["top_logprobs"] == 2 and len(got) == r["usage"]["output_tokens"] - 1
    assert "".join(p["token"] for p in got) == PARIS and all(len(p["top_logprobs"]) == 2 for p in got)
    e = events(server, include=["message.output_text.logprobs"], top_logprobs=2)
    assert sum((x["logprobs"] for x in e if x["type"] == "response.output_text.delta"), []) == got


def test_fields_that_are_taken(server):
    r = respond(server, background=False, truncation="disabled", text={"format": {"type": "text"}, "verbosity": "low"},
                reasoning={"effort": "low", "summary": "auto"}, parallel_tool_calls=True, prompt_cache_key="x", safety_identifier="y",
                include=["reasoning.encrypted_content"], service_tier="auto", model="default", max_tool_calls=None,
                stream_options=None, tool_choice="auto", seed=1, top_p=0.9)
    assert text_of(r) == PARIS
    r = respond(server, truncation="auto")  # it fits: nothing would be left out
    assert text_of(r) == PARIS and r["truncation"] == "auto"


@pytest.mark.parametrize("word, body", [
    ("input", {"input": None}), ("input", {"input": 1}), ("input", {"input": []}), ("input[0]", {"input": [1]}),
    ("input[0]", {"input": [{"role": "robot", "content": "a"}]}), ("input[0]", {"input": [{"role": "user"}]}),
    ("input_image", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
    ("item_reference", {"input": [{"type": "item_reference", "id": "x"}]}),
    ("call_id", {"input": [{"type": "function_call_output", "output": "x"}]}),
    ("arguments", {"input": [{"type": "function_call", "call_id": "x", "name": "y"}]}),
    ("instructions", {"instructions": 1}), ("max_output_tokens", {"max_output_tokens": 0}),
    ("max_output_tokens", {"max_output_tokens": "1"}), ("temperature", {"temperature": -1}),
    ("previous_response_id", {"previous_response_id": 1}), ("metadata", {"metadata": "x"}),
    ("'metadata.c'", {"metadata": {"a": "b", "c": 1}}), ("512", {"metadata": {"a": "b" * 513}}),
    ("at most 16", {"metadata": {str(i): "" for i in range(17)}}), ("user", {"user": {"id": 1}}), ("truncation", {"truncation": 1}),
    ("truncation", {"truncation": {"type": "auto"}}), ("truncation", {"truncation": ""}),
    ("store", {"store": 1}), ("include", {"include": "x"}), ("include", {"include": [1]}),
    ("top_logprobs", {"top_logprobs": 21}), ("truncation", {"truncation": "none"}),
    ("background", {"background": True}), ("conversation", {"conversation": "x"}), ("prompt", {"prompt": {"id": "x"}}),
    ("text", {"text": 1}), ("text.format", {"text": {"format": 1}}), ("text.format", {"text": {"format": {"type": "x"}}}),
    ("tools", {"tools": 1}),
    ("name", {"tools": [{"type": "function"}]}), ("tool_choice", {"tool_choice": {"type": "file_search"}}),
    ("reasoning", {"reasoning": "high"}), ("reasoning.effort", {"reasoning": {"effort": 1}}), ("max_tool_calls", {"max_tool_calls": 3}),
])
def test_wrong_values(server, word, body):
    status, _, data = server.request("POST", PATH, {"input": ASK, "max_output_tokens": 1, **body})
    assert status == 400, (status, data)
    error = json.loads(data)["error"]
    assert error["type"] == "invalid_request_error" and word in error["message"], error


def test_the_context_is_too_small(start_server):
    server = start_server("--context", "64")
    error = server.json("POST", PATH, {"input": "word " * 200}, status=400)["error"]
    assert error["code"] == "context_length_exceeded" and error["param"] == "input"
    error = server.json("POST", PATH, {"input": "a", "max_output_tokens": 64}, status=400)["error"]
    assert error["param"] == "max_output_tokens"


def test_only_the_models_name_unless_any_is_allowed(server, start_server):
    assert server.json("POST", PATH, {"input": "a", "model": "gpt-5"}, status=404)["error"]["code"] == "model_not_found"
    free = start_server("--any-model")
    assert respond(free, "a", max_output_tokens=1, model="gpt-5")["model"] == "weir-nano"


# --- the official client ---


@pytest.fixture(scope="module")
def client(server):
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_client(client):
    r = client.responses.create(model="default", input=ASK, temperature=0)
    assert r.output_text == PARIS and r.usage.output_tokens > 0 and r.status == "completed"
    assert client.responses.retrieve(r.id).output_text == PARIS
    more = client.responses.create(model="default", input="Thanks", previous_response_id=r.id, temperature=0)
    assert more.usage.input_tokens > r.usage.input_tokens
    client.responses.delete(r.id)
    import openai
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(r.id)


def test_client_stream(client):
    with client.responses.stream(model="default", input=ASK, temperature=0) as s:
        text = "".join(e.delta for e in s if e.type == "response.output_text.delta")
        final = s.get_final_response()
    assert text == final.output_text == PARIS


def test_client_tools(client):
    ask = [{"role": "user", "content": "What is the weather in Paris?"}]
    with client.responses.stream(model="default", input=ask, temperature=0, tools=[WEATHER]) as s:
        final = s.get_final_response()
    call = final.output[-1]
    assert call.type == "function_call" and json.loads(call.arguments) == {"city": "Paris"}
    back = client.responses.create(
        model="default", temperature=0, tools=[WEATHER], max_output_tokens=20,
        input=[*ask, call, {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny"}])
    assert back.object == "response"


def test_a_key_sees_its_own_answers_only(start_server, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": n, "key": f"sk-{n}-0123456789"} for n in ("one", "two")]}))
    server = start_server("--api-keys", str(keys))
    one, two = ({"Authorization": f"Bearer sk-{n}-0123456789"} for n in ("one", "two"))
    r = server.json("POST", PATH, {"input": "a", "max_output_tokens": 1}, headers=one)
    at = f"{PATH}/{r['id']}"
    server.json("GET", at, status=404, headers=two)
    server.json("DELETE", at, status=404, headers=two)
    more = {"input": "b", "max_output_tokens": 1, "previous_response_id": r["id"]}
    server.json("POST", PATH, more, status=404, headers=two)
    assert server.json("GET", at, headers=one) == r
    server.json("POST", PATH, more, headers=one)
