"""Questions with tools, and the shape of what is streamed in answer to them."""

CHAT = "/v1/chat/completions"


def tool(name, about="", **properties):
    return {"type": "function", "function": {
        "name": name, "description": about, "parameters": {
            "type": "object", "properties": {k: {"type": v} for k, v in properties.items()},
            "required": list(properties)}}}


WEATHER = tool("get_weather", "Get the weather of a city", city="string")
TIME = tool("get_time", "Get the time in a city", city="string")
COUNT = {"type": "function", "function": {"name": "count", "parameters": {
    "type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99},
                                     "unit": {"enum": ["day", "week"]}},
    "required": ["n", "unit"], "additionalProperties": False}}}


def ask(question="What is the weather in Oslo?", **more):
    return {"messages": [{"role": "user", "content": question}], "tools": [WEATHER, TIME],
            "temperature": 0, **more}


def check_shape(events):
    """Deltas as OpenAI sends them: the role first and once, a call's head before its arguments."""
    seen, finished = {}, False
    for i, event in enumerate(events):
        (choice,) = event["choices"]
        delta = choice["delta"]
        assert not finished
        assert (delta.get("role") == "assistant") == (i == 0)
        for field in ("content", "reasoning_content"):
            assert delta.get(field) != ""
        for call in delta.get("tool_calls", []):
            if call["index"] not in seen:
                assert call["index"] == len(seen)
                assert call["id"] and call["type"] == "function"
                assert call["function"]["name"] and call["function"]["arguments"] == ""
                seen[call["index"]] = ""
            else:
                assert set(call) == {"index", "function"}
                assert list(call["function"]) == ["arguments"] and call["function"]["arguments"]
                seen[call["index"]] += call["function"]["arguments"]
        if choice["finish_reason"]:
            assert delta == {}
            finished = True
    assert finished
    return seen
