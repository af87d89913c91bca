"""Tools of /v1/responses that are not functions: what coding agents send beside them."""

import json

import pytest

from test_responses import ASK, PARIS, PATH, WEATHER, events, respond, text_of, tokens, without_ids

HOSTED = [{"type": t} for t in ("web_search", "web_search_preview", "image_generation", "local_shell", "tool_search",
                                "code_interpreter", "file_search", "mcp", "computer_use_preview", "of_next_year")]
PATCH = {"type": "custom", "name": "apply_patch", "description": "Change files",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/s"}}
SPACE = {"type": "namespace", "name": "mcp__sky", "description": "Of the sky", "tools": [
    {**WEATHER, "defer_loading": True}, {"type": "web_search"}]}
WRONG = {"type": "function", "name": "wrong", "parameters": {"type": "nothing"}, "strict": True}
WEATHER_ASK = "What is the weather in Paris?"


def allow(mode, *tools):
    return {"type": "allowed_tools", "mode": mode, "tools": list(tools)}


def test_what_the_server_has_not_is_left_out(server):
    """The model is not told, the answer says so, and functions beside them work."""
    r = respond(server, tools=HOSTED, tool_choice="auto")
    assert text_of(r) == PARIS and r["tools"] == [] and r["usage"]["input_tokens"] == tokens(server, input=ASK)
    r = respond(server, WEATHER_ASK, tools=[*HOSTED, WEATHER])
    assert r["tools"] == [WEATHER] and without_ids(r) == without_ids(respond(server, WEATHER_ASK, tools=[WEATHER]))
    assert events(server, tools=HOSTED)[0]["response"]["tools"] == []


@pytest.mark.parametrize("choice", [*HOSTED, {"type": "custom", "name": "x"}, {"type": "function", "name": "x"},
                                    {"type": "function", "name": "get_weather", "namespace": "x"}, {"type": "custom"},
                                    {}])
def test_they_cannot_be_asked_for(server, choice):
    body = {"input": ASK, "tools": [*HOSTED, WEATHER], "tool_choice": choice}
    error = server.json("POST", PATH, body, status=400)["error"]
    assert "tool_choice" in error["message"] and error["param"] == "tool_choice"


def test_some_tool_is_required_and_none_is_left(server):
    error = server.json("POST", PATH, {"input": ASK, "tools": HOSTED, "tool_choice": "required"}, status=400)["error"]
    assert error["param"] == "tool_choice"
    for more in ([], [WEATHER]):
        body = {"input": ASK, "tools": [*HOSTED, *more], "tool_choice": allow("required", *HOSTED)}
        error = server.json("POST", PATH, body, status=400)["error"]
        assert error["param"] == "tool_choice" and "none of which this server has" in error["message"], error


def as_function(**more):
    return {"type": "function", "name": "apply_patch", **more,
            "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}}


def test_a_custom_tool_is_a_function_of_one_text(server):
    """Told as one, with its grammar; forced, called, streamed, gone on with."""
    about = "Change files\n\nThe input conforms to this grammar (lark):\nstart: /.+/s"
    assert tokens(server, input=ASK, tools=[PATCH]) == tokens(server, input=ASK, tools=[as_function(description=about)])
    force = {"tools": [PATCH], "tool_choice": {"type": "custom", "name": "apply_patch"}, "max_output_tokens": 120}
    r = respond(server, **force)
    (item,) = r["output"]
    assert r["status"] == "completed" and r["tools"] == [PATCH]
    assert set(item) == {"id", "status", "type", "call_id", "name", "input"}
    assert (item["type"], item["name"], item["status"]) == ("custom_tool_call", "apply_patch", "completed")
    assert item["id"].startswith("ctc_")
    said = respond(server, tools=[as_function(description=about)], max_output_tokens=120,
                   tool_choice={"type": "function", "name": "apply_patch"})["output"][0]
    assert said["type"] == "function_call" and json.loads(said["arguments"]) == {"input": item["input"]}
    e = events(server, **force)
    assert without_ids(e[-1]["response"]) == without_ids(r)
    assert [x["type"] for x in e[2:-1]] == ["response.output_item.added", "response.custom_tool_call_input.delta",
                                            "response.custom_tool_call_input.done", "response.output_item.done"]
    assert e[2]["item"]["input"] == "" and e[2]["item"]["type"] == "custom_tool_call"
    assert e[3]["delta"] == e[4]["input"] == e[5]["item"]["input"] == item["input"]
    result = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "Done"}
    ask = {"role": "user", "content": ASK}
    n = tokens(server, input=[ask, item, result], tools=[PATCH])
    assert tokens(server, input=[result], previous_response_id=r["id"], tools=[PATCH]) == n
    said = {**said, "call_id": item["call_id"], "arguments": json.dumps({"input": item["input"]})}
    assert n == tokens(server, input=[ask, said, {**result, "type": "function_call_output"}], tools=[PATCH])


def test_a_custom_call_that_a_limit_cuts(server):
    """It is what the model wrote of it, and says that it is not whole."""
    r = respond(server, tools=[PATCH], tool_choice={"type": "custom", "name": "apply_patch"}, max_output_tokens=20)
    (item,) = r["output"]
    assert r["status"] == item["status"] == "incomplete" and item["type"] == "custom_tool_call", r
    assert item["input"] and '{"input": "'.startswith(item["input"]), item


def test_tools_in_a_namespace(server):
    """The model has one name for both; the answer and the next question have two."""
    r = respond(server, WEATHER_ASK, tools=[SPACE], tool_choice="required")
    item = r["output"][-1]
    assert (item["type"], item["name"], item["namespace"]) == ("function_call", "get_weather", "mcp__sky")
    assert r["tools"] == [{**SPACE, "tools": SPACE["tools"][:1]}]
    about = "Namespace mcp__sky: Of the sky\n\nCurrent weather"
    flat = {**WEATHER, "name": "mcp__sky__get_weather", "description": about}
    assert tokens(server, input=ASK, tools=[SPACE]) == tokens(server, input=ASK, tools=[flat])
    plain = tokens(server, input=ASK, tools=[{**flat, "description": "Current weather"}])
    assert tokens(server, input=ASK, tools=[{**SPACE, "name": "mcp__sky__", "description": None}]) == plain
    named = {"type": "function", "name": "get_weather", "namespace": "mcp__sky"}
    again = respond(server, WEATHER_ASK, tools=[SPACE], tool_choice=named)["output"][-1]
    assert (again["name"], again["namespace"]) == ("get_weather", "mcp__sky")
    e = events(server, WEATHER_ASK, tools=[SPACE], tool_choice="required")
    done = next(x for x in e if x["type"] == "response.function_call_arguments.done")
    assert done["name"] == "get_weather" and without_ids(e[-1]["response"]) == without_ids(r)
    ask = {"role": "user", "content": WEATHER_ASK}
    back = {"type": "function_call_output", "call_id": item["call_id"], "output": "Sunny"}
    n = tokens(server, input=[ask, item, back], tools=[SPACE])
    assert n == tokens(server, input=[back], previous_response_id=r["id"], tools=[SPACE])
    call = {k: v for k, v in item.items() if k != "namespace"}
    assert n == tokens(server, input=[ask, {**call, "name": "mcp__sky__get_weather"}, back], tools=[flat])


def test_what_a_namespace_is_about_is_told_once(server):
    """With the first of its tools, whatever brings the others."""
    other = {**WEATHER, "name": "f", "description": None}
    flat = [{**WEATHER, "name": "mcp__sky__get_weather", "description": "Namespace mcp__sky: Of the sky\n\nCurrent weather"},
            {**other, "name": "mcp__sky__f"}]
    more = {"type": "tool_search_output", "tools": [{**SPACE, "tools": [WEATHER, other]}]}
    n = tokens(server, input=ASK, tools=flat)
    assert n == tokens(server, input=ASK, tools=[{**SPACE, "tools": [WEATHER, other]}])
    r = respond(server, [more, {"role": "user", "content": ASK}], tools=[SPACE])
    assert r["usage"]["input_tokens"] == n
    assert [[t["name"] for t in space["tools"]] for space in r["tools"]] == [["get_weather"], ["f"]]
    some = allow("auto", {"type": "function", "name": "f", "namespace": "mcp__sky"})
    first = {**flat[1], "description": "Namespace mcp__sky: Of the sky"}
    assert tokens(server, input=ASK, tools=[{**SPACE, "tools": [WEATHER, other]}], tool_choice=some) == tokens(
        server, input=ASK, tools=[first])
    flat[0], flat[1] = {**flat[0], "description": "Namespace mcp__sky: Of the sky"}, {**flat[1], "description": "x"}
    bare = [{**WEATHER, "description": ""}, {**other, "description": "x"}]
    assert tokens(server, input=ASK, tools=[{**SPACE, "tools": bare}]) == tokens(server, input=ASK, tools=flat)


def test_the_same_tool_twice(server):
    """It is one, unless the two differ."""
    tools = [PATCH, WEATHER, SPACE]
    ask, n = {"role": "user", "content": ASK}, tokens(server, input=ASK, tools=tools)
    for kind in ("additional_tools", "tool_search_output"):
        more = {"type": kind, "tools": [{**WEATHER, "defer_loading": True, "strict": None}, SPACE, PATCH]}
        r = respond(server, [more, ask, more], tools=tools)
        assert r["usage"]["input_tokens"] == n and len(r["tools"]) == 3
        assert tokens(server, input=[more, more, ask]) == tokens(server, input=ASK, tools=more["tools"])
        for i, other in enumerate(({**WEATHER, "description": "x"}, as_function(description="Change files"),
                                   {**SPACE, "tools": [{**WEATHER, "strict": True}]})):
            more["tools"][1] = other
            error = server.json("POST", PATH, {"input": [more, ask], "tools": tools}, status=400)["error"]
            want = "input[0].tools[1].tools[0]" if i == 2 else "input[0].tools[1]"
            assert "another" in error["message"] and error["param"] == want, error


def test_a_namespace_without_name_and_tools_of_the_input(server):
    """Codex's `functions` is none; tools that an item brings are tools."""
    want = tokens(server, input=ASK, tools=[WEATHER])
    assert tokens(server, input=ASK, tools=[{**SPACE, "name": "functions", "description": None}]) == want
    ask = {"role": "user", "content": ASK}
    more = {"type": "additional_tools", "role": "developer", "tools": [WEATHER]}
    assert tokens(server, input=[more, ask]) == want
    r = respond(server, [more, {"role": "user", "content": WEATHER_ASK}])
    assert r["output"][-1]["name"] == "get_weather" and r["tools"] == [WEATHER]


def test_allowed_tools(server):
    """Of all kinds that are offered; what the server does not have may stand among them."""
    tools = [PATCH, {"type": "web_search"}, SPACE, {**WEATHER, "name": "f"}]
    n = tokens(server, input=ASK, tools=tools, tool_choice="required", parallel_tool_calls=False)
    space = {"type": "function", "name": "get_weather", "namespace": "mcp__sky"}
    for choice, name in ((space, "get_weather"), ({"type": "function", "name": "f"}, "f"),
                         ({"type": "custom", "name": "apply_patch"}, "apply_patch")):
        r = respond(server, tools=tools, tool_choice=allow("required", {"type": "web_search"}, choice), parallel_tool_calls=False)
        assert r["output"][-1]["name"] == name and r["usage"]["input_tokens"] == n
        assert r["tool_choice"]["mode"] == "required"
    assert tokens(server, input=ASK, tools=tools, tool_choice=allow("auto", space)) == tokens(server, input=ASK, tools=[SPACE])
    assert tokens(server, input=ASK, tools=tools, tool_choice=allow("auto", {"type": "mcp"})) == tokens(server, input=ASK)
    for name, of in (("mcp__sky", SPACE), ("mcp__sky__", SPACE), ("functions", {**WEATHER, "name": "f"})):
        choice = allow("auto", *2 * [{"type": "namespace", "name": name}])
        some = tokens(server, input=ASK, tools=tools[1:], tool_choice=choice)
        assert some == tokens(server, input=ASK, tools=[of])
    r = respond(server, tools=tools, tool_choice=allow("required", {"type": "namespace", "name": "mcp__sky"}))
    assert {(x["name"], x["namespace"]) for x in r["output"]} == {("get_weather", "mcp__sky")}
    empty = {"type": "namespace", "name": "none", "tools": [{"type": "mcp"}]}
    assert tokens(server, input=ASK, tools=[WEATHER, empty],
                  tool_choice=allow("auto", {"type": "namespace", "name": "none"})) == tokens(server, input=ASK)


def test_how_many_are_allowed(server):
    """A list that is too long is refused; names may stand in it twice."""
    some = {"type": "function", "name": "get_weather"}
    assert tokens(server, input=ASK, tools=[WEATHER], tool_choice=allow("auto", *512 * [some])) == tokens(
        server, input=ASK, tools=[WEATHER])
    tools = [{"type": "function", "name": f"f{i}"} for i in range(512)]
    for kind in (some, {"type": "mcp"}, {"type": "namespace", "name": "functions"}):
        body = {"input": ASK, "tools": tools, "tool_choice": allow("auto", *100_000 * [kind])}
        error = server.json("POST", PATH, body, status=400)["error"]
        assert error["param"] == "tool_choice.tools" and "512" in error["message"]
    for more in ({"tools": [*tools, WEATHER]}, {"tools": [{**SPACE, "tools": [*tools, WEATHER]}]}):
        assert "512" in server.json("POST", PATH, {"input": ASK, **more}, status=400)["error"]["message"]


@pytest.mark.parametrize("param, choice", [
    ("tool_choice", allow("required", {"type": "web_search"})), ("tool_choice", allow("auto")),
    ("tool_choice.tools", {"type": "allowed_tools", "mode": "auto"}), ("tool_choice", allow(None, {"type": "function", "name": "get_weather"})),
    ("tool_choice.mode", allow(1, {"type": "function", "name": "get_weather"})),
    ("tool_choice.tools[1]", allow("auto", {"type": "mcp"}, {"type": "function"})),
    ("tool_choice.tools[0]", allow("auto", {"name": "get_weather"})), ("tool_choice.tools[0]", allow("auto", "get_weather")),
    ("tool_choice", allow("auto", {"type": "function", "name": "other"})),
    ("tool_choice", allow("auto", {"type": "namespace", "name": "other"})),
    ("tool_choice.tools[0]", allow("auto", {"type": "namespace"})),
    ("tool_choice.tools[0].namespace", allow("auto", {"type": "custom", "name": "get_weather", "namespace": 5})),
    ("tool_choice.namespace", {"type": "function", "name": "get_weather", "namespace": 5}),
])
def test_wrong_lists_of_allowed_tools(server, param, choice):
    error = server.json("POST", PATH, {"input": ASK, "tools": [WEATHER], "tool_choice": choice}, status=400)["error"]
    assert error["param"] == param, error


def test_history_of_tools_that_others_ran(server):
    """What only they know is left out; calls and results of the client's own are in the prompt."""
    ask, n = {"role": "user", "content": ASK}, tokens(server, input=ASK)
    for t in ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_list_tools",
              "mcp_call", "mcp_approval_request", "mcp_approval_response", "tool_search_call", "tool_search_output"):
        assert tokens(server, input=[ask, {"type": t, "id": "x", "status": "completed"}]) == n
    shell = [ask, {"type": "local_shell_call", "call_id": "a", "action": {"command": ["ls"]}},
             {"type": "local_shell_call_output", "id": "a", "output": "cat"}]
    call = [ask, {"type": "function_call", "call_id": "a", "name": "local_shell", "arguments": '{"command":["ls"]}'},
            {"type": "function_call_output", "call_id": "a", "output": "cat"}]
    assert tokens(server, input=shell) == tokens(server, input=call) > n
    shell[2] = {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": "cat"}]}
    call[2]["output"] = '[{"stdout":"cat"}]'
    assert tokens(server, input=shell) == tokens(server, input=call)


def test_what_came_of_a_patch(server):
    """Whether it could be done, and what else is said of it."""
    ask = {"role": "user", "content": ASK}
    patch = [ask, {"type": "apply_patch_call", "call_id": "a", "operation": {"type": "delete_file", "path": "x"}}, None]
    call = [ask, {"type": "function_call", "call_id": "a", "name": "apply_patch",
                  "arguments": '{"type":"delete_file","path":"x"}'}, None]
    for said, text in (({"status": "failed"}, "failed"), ({"status": "completed", "output": None}, "completed"),
                       ({"status": "failed", "output": "No such file"}, "failed\nNo such file"),
                       ({"output": "Done"}, "Done"), ({"status": None, "output": "Done"}, "Done"),
                       ({"status": "completed", "output": ""}, "completed\n")):
        patch[2] = {"type": "apply_patch_call_output", "call_id": "a", **said}
        call[2] = {"type": "function_call_output", "call_id": "a", "output": text}
        assert tokens(server, input=patch) == tokens(server, input=call), said
    for said in ({}, {"output": None}, {"status": 1, "output": "x"}, {"status": "in_progress"}):
        patch[2] = {"type": "apply_patch_call_output", "call_id": "a", **said}
        error = server.json("POST", PATH, {"input": patch}, status=400)["error"]
        assert error["param"] == "input[2]" and "status" in error["message"], error


@pytest.mark.parametrize("word, param, body", [
    ("previous_response_id", "input[0]", {"input": [{"type": "item_reference", "id": "x"}]}),
    ("compaction", "input[0]", {"input": [{"type": "compaction", "encrypted_content": "x"}]}),
    ("call_id", "input[0]", {"input": [{"type": "custom_tool_call", "name": "a", "input": "x"}]}),
    ("input", "input[0]", {"input": [{"type": "custom_tool_call", "name": "a", "call_id": "x", "input": {}}]}),
    ("action", "input[0]", {"input": [{"type": "local_shell_call", "call_id": "x", "action": "ls"}]}),
    ("call_id", "input[0]", {"input": [{"type": "custom_tool_call_output", "output": "x"}]}),
    ("type", "tools[0]", {"tools": [{"name": "x"}]}), ("object", "tools[0]", {"tools": [1]}),
    ("name", "tools[1]", {"tools": [{"type": "mcp"}, {"type": "custom"}]}),
    ("letters", "tools[1]", {"tools": [{"type": "mcp"}, {"type": "custom", "name": "a b"}]}),
    ("another", "tools[2]", {"tools": [PATCH, {"type": "mcp"}, {**WEATHER, "name": "apply_patch"}]}),
    ("description", "tools[1].description", {"tools": [{"type": "mcp"}, {**WEATHER, "description": 1}]}),
    ("name", "tools[0]", {"tools": [{"type": "namespace", "tools": []}]}),
    ("array", "tools[0].tools", {"tools": [{**SPACE, "tools": 1}]}),
    ("letters", "tools[0].tools[1]", {"tools": [{**SPACE, "tools": [{"type": "mcp"}, {**WEATHER, "name": "ü"}]}]}),
    *[("a string, not", f"tools[1].{k}", {"tools": [{"type": "mcp"}, {**PATCH, k: 5}]}) for k in ("description", "namespace")],
    *[("string", f"tools[0].format.{k}", {"tools": [{**PATCH, "format": {"type": "grammar", k: {}}}]})
      for k in ("definition", "syntax", "type")],
    ("object", "tools[0].format", {"tools": [{**PATCH, "format": 5}]}),
    ("string", "tools[0].description", {"tools": [{**SPACE, "description": 5}]}),
    ("string", "input[0].namespace", {"input": [
        {"type": "custom_tool_call", "name": "a", "call_id": "x", "input": "x", "namespace": 5}]}),
    ("in a namespace", "tools[0].tools[0]", {"tools": [{**SPACE, "tools": [SPACE]}]}),
    ("mcp__sky__" + "x" * 120, "tools[0].tools[0]", {"tools": [{**SPACE, "tools": [{**WEATHER, "name": "x" * 120}]}]}),
    ("output", "input[0]", {"input": [{"type": "shell_call_output", "call_id": "x", "output": None}]}),
    ("object", "input[0].tools[0]", {"input": [{"type": "tool_search_output", "tools": [1]}]}),
    ("array", "input[0].tools", {"input": [{"type": "additional_tools", "tools": {}}, {"role": "user", "content": "a"}]}),
])
def test_wrong_values(server, word, param, body):
    error = server.json("POST", PATH, {"input": ASK, "max_output_tokens": 1, **body}, status=400)["error"]
    assert word in error["message"] and error["param"] == param, error


@pytest.mark.parametrize("place, more", [
    ("/tools/2", {"tools": [WEATHER, {"type": "mcp"}, WRONG]}),
    ("/tools/1/tools/2", {"tools": [PATCH, {**SPACE, "tools": [WEATHER, {"type": "mcp"}, WRONG]}]}),
    ("/input/0/tools/1", {"input": [{"type": "additional_tools", "tools": [WEATHER, WRONG]}, {"role": "user", "content": ASK}],
                          "tools": [WEATHER]}),
    ("/tools/2", {"tools": [{"type": "mcp"}, WEATHER, WRONG], "tool_choice": allow("auto", {"type": "function", "name": "wrong"})}),
    ("/tools/2", {"tools": [{"type": "mcp"}, WEATHER, WRONG], "tool_choice": allow("required", {"type": "function", "name": "wrong"})}),
    ("/tools/2", {"tools": [{"type": "mcp"}, WEATHER, WRONG], "text": {"format": {"type": "json_object"}}}),
])
def test_a_wrong_schema_is_found_where_the_client_has_it(server, place, more):
    error = server.json("POST", PATH, {"input": ASK, **more}, status=400)["error"]
    assert f'at "{place}/parameters/type": ' in error["message"], error


def test_a_coding_agent(server):
    """A whole request as Codex makes it, in its second turn."""
    body = {
        "model": "default", "instructions": "You are a coding agent.", "stream": True, "store": False,
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "client_metadata": {"x": "y"},
        "parallel_tool_calls": False, "tool_choice": "auto", "reasoning": {"effort": "medium", "summary": "auto"},
        "text": {"verbosity": "low"}, "tools": [WEATHER, PATCH, SPACE, *HOSTED], "max_output_tokens": 12,
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": ASK}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "x", "content": None},
            {"type": "custom_tool_call", "status": "completed", "call_id": "c1", "name": "apply_patch", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"},
            {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": PARIS}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Thanks"}]}]}
    e = server.named_events(PATH, body)
    assert e[-1]["type"] in ("response.completed", "response.incomplete")
    assert [t["type"] for t in e[-1]["response"]["tools"]] == ["function", "custom", "namespace"]


def test_client(server):
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    with client.responses.stream(model="default", input=ASK, temperature=0, tools=[PATCH, {"type": "web_search"}],
                                 tool_choice={"type": "custom", "name": "apply_patch"}) as s:
        final = s.get_final_response()
    (call,) = final.output
    assert call.type == "custom_tool_call" and isinstance(call.input, str) and len(final.tools) == 1
    back = client.responses.create(model="default", temperature=0, max_output_tokens=8, tools=[PATCH], input=[
        {"role": "user", "content": ASK}, call,
        {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Done"}])
    assert back.object == "response"
