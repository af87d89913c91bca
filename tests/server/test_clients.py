"""The official clients over everything they have that Weir serves. Their types are lenient when they
parse; here every answer and every event of a stream is held to them strictly, so that each field is there
whenever the types say it is."""

import base64
import json
import struct

import pytest

openai = pytest.importorskip("openai", reason="the OpenAI client is not installed")
pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")

HELLO = [{"role": "user", "content": "What is the capital of France?"}]
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"], "additionalProperties": False}}}
FLAT_TOOL = {"type": "function", "name": "add", "parameters": TOOL["function"]["parameters"],
             "strict": True}


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=10)
    capital: bool
    size: int = pydantic.Field(ge=0, le=9)


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def strict(kind, value):
    """The value by its type, no field missing, none of another type."""
    return pydantic.TypeAdapter(kind).validate_python(value)


def chunks_of(server, path, body, kind):
    found = server.events(path, body)
    for chunk in found:
        strict(kind, chunk)
    return found


# ---- chat

CHAT = "/v1/chat/completions"
CHAT_BODIES = [
    {}, {"n": 2, "seed": 1}, {"logprobs": True, "top_logprobs": 2, "max_tokens": 4},
    {"stop": ["a", "e"], "seed": 1}, {"max_tokens": 1}, {"tools": [TOOL]},
    {"tools": [TOOL], "tool_choice": "none"}, {"tools": [TOOL], "tool_choice": "required"},
    {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False},
    {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "add"}}},
    {"response_format": {"type": "json_object"}, "max_tokens": 40},
    {"response_format": {"type": "text"}}, {"stream_options": {"include_usage": True}}]


@pytest.mark.parametrize("more", CHAT_BODIES, ids=lambda b: ",".join(b) or "plain")
def test_chat(server, more):
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    body = {"model": "default", "messages": HELLO, "max_tokens": 60, **more}
    whole = server.json("POST", CHAT, body)
    strict(ChatCompletion, whole)
    found = chunks_of(server, CHAT, body, ChatCompletionChunk)
    usage = "stream_options" in more
    assert [c["choices"] == [] for c in found].count(True) == usage
    assert bool(found[-1].get("usage")) == usage
    for choice in whole["choices"]:
        of = [x for c in found for x in c["choices"] if x["index"] == choice["index"]]
        assert of[0]["delta"]["role"] == "assistant"
        assert [x["finish_reason"] for x in of][:-1] == [None] * (len(of) - 1)
        assert len({c["id"] for c in found}) == 1 == len({c["created"] for c in found})
        calls = {}
        for x in of:
            for call in x["delta"].get("tool_calls") or []:
                one = calls.setdefault(call["index"], {"arguments": ""})
                if "id" in call:  # the first of a call has all but its arguments
                    assert call["type"] == "function" and call["function"]["arguments"] == ""
                    one["name"] = call["function"]["name"]
                one["arguments"] += call["function"]["arguments"]
        if choice["finish_reason"] == "tool_calls":
            assert of[-1]["finish_reason"] == "tool_calls"
            assert [c["name"] for c in calls.values()] == ["add"] * len(calls)
            for call in calls.values():
                assert set(json.loads(call["arguments"])) == {"a", "b"}


def test_chat_helpers(client):
    """.parse() with a model, and the stream that gathers."""
    asked = {"model": "default", "messages": HELLO, "max_tokens": 120, "temperature": 0}
    parsed = client.chat.completions.parse(response_format=City, **asked)
    assert isinstance(parsed.choices[0].message.parsed, City)
    with client.chat.completions.stream(response_format=City, **asked) as stream:
        kinds = {event.type for event in stream}
        assert stream.get_final_completion().choices[0].message.parsed == \
            parsed.choices[0].message.parsed
    assert {"chunk", "content.delta", "content.done"} <= kinds
    tool = openai.pydantic_function_tool(City, name="found")
    called = client.chat.completions.parse(tools=[tool], tool_choice="required", **asked)
    assert isinstance(called.choices[0].message.tool_calls[0].function.parsed_arguments, City)
    with client.chat.completions.stream(tools=[tool], tool_choice="required", **asked) as stream:
        for event in stream:
            pass
        again = stream.get_final_completion().choices[0].message.tool_calls[0].function
    assert again.arguments == called.choices[0].message.tool_calls[0].function.arguments


# ---- completions

@pytest.mark.parametrize("more", [
    {}, {"echo": True}, {"echo": True, "logprobs": 2}, {"logprobs": 3}, {"n": 2, "best_of": 2},
    {"suffix": None}, {"prompt": ["Once", "There"]}, {"prompt": [65, 66]}, {"stop": "\n"},
    {"stream_options": {"include_usage": True}}], ids=lambda b: ",".join(b) or "plain")
def test_completions(server, more):
    from openai.types import Completion
    body = {"model": "default", "prompt": "Once", "max_tokens": 8, "seed": 1, **more}
    whole = server.json("POST", "/v1/completions", body)
    found = server.events("/v1/completions", body)
    # OpenAI's own answers differ from the type here: a prompt's first token has no probability, and
    # a chunk has no end yet
    for chunk in [whole, *found]:
        for choice in chunk["choices"]:
            assert {"text", "index", "logprobs", "finish_reason"} <= set(choice)
            choice["finish_reason"] = choice["finish_reason"] or "stop"
            logprobs = choice["logprobs"]
            if logprobs and logprobs["tokens"] and logprobs["token_logprobs"][0] is None:
                assert more.get("echo") and logprobs["top_logprobs"][0] is None
                logprobs["token_logprobs"][0], logprobs["top_logprobs"][0] = 0.0, {}
        strict(Completion, chunk)
    for choice in whole["choices"]:
        text = "".join(x["text"] for c in found for x in c["choices"]
                       if x["index"] == choice["index"])
        assert text == choice["text"]


def test_what_completions_refuse(client):
    for more in ({"suffix": "x"}, {"best_of": 3}):
        with pytest.raises(openai.BadRequestError) as e:
            client.completions.create(model="default", prompt="a", **more)
        assert e.value.param == next(iter(more))


# ---- responses

RESPONSES = [{}, {"tools": [FLAT_TOOL], "tool_choice": "required"}, {"tools": [FLAT_TOOL]},
             {"instructions": "Be short.", "metadata": {"a": "b"}}, {"max_output_tokens": 1},
             {"text": {"format": {"type": "json_object"}}, "max_output_tokens": 40},
             {"include": ["message.output_text.logprobs"], "top_logprobs": 2}]


@pytest.mark.parametrize("more", RESPONSES, ids=lambda b: ",".join(b) or "plain")
def test_responses(server, more):
    from openai.types.responses import Response, ResponseStreamEvent
    body = {"model": "default", "input": "What is 37 + 48?", "max_output_tokens": 60, "seed": 1,
            **more}
    strict(Response, server.json("POST", "/v1/responses", body))
    found = server.named_events("/v1/responses", body)
    for event in found:
        strict(ResponseStreamEvent, event)
    assert [e["sequence_number"] for e in found] == list(range(len(found)))
    assert found[0]["type"] == "response.created"
    assert found[-1]["type"] in ("response.completed", "response.incomplete")


def test_responses_helpers(client):
    asked = {"model": "default", "max_output_tokens": 120, "temperature": 0}
    first = client.responses.parse(input="A city?", text_format=City, **asked)
    assert isinstance(first.output_parsed, City)
    second = client.responses.create(input="And now?", previous_response_id=first.id, **asked)
    assert second.previous_response_id == first.id
    assert client.responses.retrieve(first.id).id == first.id
    with client.responses.stream(input="A city?", text_format=City, **asked) as stream:
        for event in stream:
            pass
        assert stream.get_final_response().output_parsed == first.output_parsed
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_input_items(client, server):
    """Each kind of item that the client has a type for, page by page as it asks itself."""
    from openai.types.responses import ResponseItemList
    asked = {"model": "default", "max_output_tokens": 16, "temperature": 0}
    call = {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{}"}
    talk = [*HELLO, {"role": "assistant", "content": "Paris."}, call,
            {"type": "function_call_output", "call_id": "a", "output": "1"}, {"role": "user", "content": "And?"}]
    first = client.responses.create(input=talk, **asked)
    second = client.responses.create(input="And now?", previous_response_id=first.id, **asked)
    strict(ResponseItemList, server.json("GET", f"/v1/responses/{second.id}/input_items?limit=100"))
    items = list(client.responses.input_items.list(second.id, limit=2, order="asc"))
    assert len(items) == len(talk) + len(first.output) + 1 and len({i.id for i in items}) == len(items)
    assert [i.type for i in items[:5]] == ["message", "message", "function_call", "function_call_output", "message"]
    assert items[-1].content[0].text == "And now?" and items[-2].id == first.output[-1].id


# ---- the rest

def test_embeddings_and_models(client, server):
    from openai.types import CreateEmbeddingResponse, Model
    texts = ["a", "b"]
    body = {"model": "default", "input": texts}
    strict(CreateEmbeddingResponse, server.json("POST", "/v1/embeddings", body))
    plain = client.embeddings.create(encoding_format="float", **body)
    packed = server.json("POST", "/v1/embeddings", {**body, "encoding_format": "base64"})
    default = client.embeddings.create(**body)  # asks for base64 by itself
    for a, b, c in zip(plain.data, packed["data"], default.data):
        n = len(a.embedding)
        assert list(struct.unpack(f"<{n}f", base64.b64decode(b["embedding"]))) == \
            pytest.approx(a.embedding) == list(c.embedding)
    for model in client.models.list():
        strict(Model, server.json("GET", f"/v1/models/{model.id}"))


def test_files_and_batches(start_server, tmp_path):
    from openai.types import Batch, FileDeleted, FileObject
    server = start_server("--batch-dir", str(tmp_path))
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    lines = b"".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions",
                                 "body": {"prompt": "Once", "max_tokens": 2}}).encode() + b"\n"
                     for i in range(3))
    file = client.files.create(file=("in.jsonl", lines), purpose="batch")
    strict(FileObject, server.json("GET", f"/v1/files/{file.id}"))
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions",
                                  completion_window="24h")
    while batch.status not in ("completed", "failed"):
        batch = client.batches.retrieve(batch.id)
    strict(Batch, server.json("GET", f"/v1/batches/{batch.id}"))
    assert batch.request_counts.completed == 3
    assert len(client.files.content(batch.output_file_id).text.splitlines()) == 3
    assert [b.id for b in client.batches.list()] == [batch.id]
    assert {f.id for f in client.files.list()} >= {file.id, batch.output_file_id}
    strict(FileDeleted, server.json("DELETE", f"/v1/files/{file.id}"))


# ---- Anthropic

MESSAGES = [{}, {"system": "Be short.", "metadata": {"user_id": "u"}}, {"stop_sequences": ["a"]},
            {"max_tokens": 1}, {"thinking": {"type": "disabled"}},
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000},
            {"tools": [{"name": "add", "input_schema": TOOL["function"]["parameters"]}],
             "tool_choice": {"type": "any"}}]


@pytest.mark.parametrize("more", MESSAGES, ids=lambda b: ",".join(b) or "plain")
def test_messages(server, more):
    pytest.importorskip("anthropic", reason="the Anthropic client is not installed")
    from anthropic.types import Message, RawMessageStreamEvent
    body = {"model": "default", "messages": HELLO, "max_tokens": 60, "seed": 1, **more}
    strict(Message, server.json("POST", "/v1/messages", body))
    found = server.named_events("/v1/messages", body)
    kinds = [e["type"] for e in found]
    for event in found:
        if event["type"] != "ping":  # which the type does not list
            strict(RawMessageStreamEvent, event)
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop")


def test_messages_helpers(server):
    anthropic = pytest.importorskip("anthropic", reason="the Anthropic client is not installed")
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    asked = {"model": "claude", "max_tokens": 60, "messages": HELLO, "extra_body": {"seed": 1}}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    counted = client.messages.count_tokens(model="claude", messages=HELLO)
    usage = whole.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


ADD = {"name": "add", "description": "Adds.", "input_schema": TOOL["function"]["parameters"]}


def test_messages_tools_streamed(server):
    """A call as it comes, its result, and the answer to that, by the client's own helpers."""
    anthropic = pytest.importorskip("anthropic", reason="the Anthropic client is not installed")
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    ask = {"model": "claude", "max_tokens": 120, "tools": [ADD], "messages": HELLO,
           "extra_body": {"seed": 1}}
    for choice in ({"type": "any"}, {"type": "tool", "name": "add"},
                   {"type": "any", "disable_parallel_tool_use": True}):
        json_parts, kinds = [], []
        with client.messages.stream(**ask, tool_choice=choice) as stream:
            for event in stream:
                kinds.append(event.type)
                if event.type == "input_json":
                    json_parts.append(event.partial_json)
            final = stream.get_final_message()
        calls = [b for b in final.content if b.type == "tool_use"]
        assert calls and final.stop_reason == "tool_use" and kinds.count("message_stop") == 1
        assert json.loads("".join(json_parts).split("}")[0] + "}") == calls[0].input
        assert set(calls[0].input) == {"a", "b"} and calls[0].name == "add"
        assert choice.get("name") is None and not choice.get("disable_parallel_tool_use") or len(calls) == 1
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": "5"} for c in calls]
        more = client.messages.create(**{**ask, "messages": HELLO + [
            {"role": "assistant", "content": final.content}, {"role": "user", "content": results}]},
            tool_choice={"type": "none"})
        assert more.stop_reason in ("end_turn", "max_tokens")
        counted = client.messages.count_tokens(model="claude", tools=[ADD], tool_choice=choice, messages=HELLO)
        assert counted.input_tokens == final.usage.input_tokens + final.usage.cache_read_input_tokens


def test_messages_tool_runner(server):
    """It would send the newest messages only, in a thread that the server keeps: there are none, and so
    it sends them all."""
    anthropic = pytest.importorskip("anthropic", reason="the Anthropic client is not installed")
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    seen = []

    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        """Adds.

        Args:
            a: one
            b: other
        """
        seen.append((a, b))
        return str(a + b)

    turns = list(client.beta.messages.tool_runner(model="claude", max_tokens=120, tools=[add], messages=HELLO,
                                                  tool_choice={"type": "any"}, max_iterations=3))
    assert [t.stop_reason for t in turns] == ["tool_use"] * 3 and len(seen) >= 2
    usage = [t.usage.input_tokens + t.usage.cache_read_input_tokens for t in turns]
    assert usage == sorted(usage) and usage[2] > usage[1] > usage[0]  # nothing was left out


def test_messages_models(server):
    anthropic = pytest.importorskip("anthropic", reason="the Anthropic client is not installed")
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    (model,) = list(client.models.list())
    assert client.models.retrieve(model.id) == model
    assert (model.type, model.display_name, model.lifecycle) == ("model", model.id, "active")
    assert abs(model.created_at.timestamp() - model.created) < 1
    assert model.max_tokens == model.max_input_tokens == model.max_model_len
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.list()


def test_messages_thinking(start_server, tmp_path):
    """Thinking within its budget, streamed and not; the block goes back with the next turn."""
    anthropic = pytest.importorskip("anthropic", reason="the Anthropic client is not installed")
    template = tmp_path / "thinks.jinja"
    template.write_text("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                        "{% if add_generation_prompt %}<|im_start|>assistant\n"
                        "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}{% endif %}"
                        "{# </think> #}")
    server = start_server("--chat-template-file", template)
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    ask = {"model": "claude", "max_tokens": 60, "messages": HELLO,
           "extra_body": {"temperature": 0, "ignore_eos": True}}
    on = {"type": "enabled", "budget_tokens": 12}
    whole = client.messages.create(**ask, thinking=on)
    assert [b.type for b in whole.content] == ["thinking", "text"] and whole.content[0].signature == ""
    thought = whole.usage.output_tokens_details.thinking_tokens
    assert 12 <= thought < whole.usage.output_tokens == 60
    chat = {"messages": HELLO, "max_tokens": 60, "temperature": 0, "ignore_eos": True, "thinking_budget_tokens": 12}
    details = server.json("POST", "/v1/chat/completions", chat)["usage"]["completion_tokens_details"]
    assert details == {"reasoning_tokens": thought}
    last = server.events("/v1/chat/completions", {**chat, "stream_options": {"include_usage": True}})[-1]
    assert last["usage"]["completion_tokens_details"] == details
    # all that comes is a line's end, none of which is shown: it was reasoning all the same
    newline = server.json("POST", "/tokenize", {"content": "\n"})["tokens"]
    silent = server.json("POST", "/v1/chat/completions", {
        **chat, "logit_bias": {str(newline[-1]): 100}, "logprobs": True})
    tokens = [t["token"] for t in silent["choices"][0]["logprobs"]["content"]]
    thought = silent["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert tokens[0].isspace() and not silent["choices"][0]["message"].get("reasoning_content")
    assert thought > 12 and "</think>" in "".join(tokens[:thought])
    assert "</think>" not in "".join(tokens[:thought - 1])
    # cut within a character, which nothing shows by itself
    first = server.json("POST", "/tokenize", {"content": "\u20ac"})["tokens"][0]
    for more in ({}, {"logprobs": True}):
        cut = server.json("POST", "/v1/chat/completions", {
            **chat, **more, "ignore_eos": False, "max_tokens": 1, "logit_bias": {str(first): 100}})
        assert cut["usage"]["completion_tokens_details"] == {"reasoning_tokens": 1}, cut
    unasked = server.json("POST", "/v1/chat/completions", {**chat, "reasoning_effort": "none"})["usage"]
    assert unasked["completion_tokens_details"] == {"reasoning_tokens": 0}
    with client.messages.stream(**ask, thinking=on) as stream:
        kinds = [e.type for e in stream]
        final = stream.get_final_message()
    assert [b.to_dict() for b in whole.content] == [
        {k: v for k, v in b.to_dict().items() if k != "parsed_output"} for b in final.content]
    assert "thinking" in kinds and "text" in kinds
    off = client.messages.create(**ask, thinking={"type": "disabled"})
    assert [b.type for b in off.content] == ["text"]
    back = client.messages.create(**{**ask, "messages": HELLO + [
        {"role": "assistant", "content": whole.content}, {"role": "user", "content": "And of Italy?"}]},
        thinking=on)
    assert back.usage.input_tokens + back.usage.cache_read_input_tokens > whole.usage.input_tokens
    told = openai.OpenAI(base_url=server.url + "/v1", api_key="none").chat.completions.create(
        model="default", messages=HELLO, max_tokens=60, temperature=0,
        extra_body={"ignore_eos": True, "thinking_budget_tokens": 12})
    assert told.choices[0].message.reasoning_content == whole.content[0].thinking
    assert told.choices[0].message.content == whole.content[1].text


def test_responses_tools_streamed(client):
    """A call as it comes; its result goes on from that answer, kept by the server."""
    with client.responses.stream(model="default", input="What is 2 + 3?", tools=[FLAT_TOOL],
                                 tool_choice="required", max_output_tokens=120) as stream:
        kinds = [e.type for e in stream]
        done = stream.get_final_response()
    calls = [x for x in done.output if x.type == "function_call"]
    assert calls and "response.function_call_arguments.delta" in kinds and kinds[-1] == "response.completed"
    assert set(json.loads(calls[0].arguments)) == {"a", "b"}
    back = client.responses.create(
        model="default", previous_response_id=done.id, max_output_tokens=8, tools=[FLAT_TOOL],
        tool_choice="auto", input=[{"type": "function_call_output", "call_id": c.call_id, "output": "5"} for c in calls])
    assert back.previous_response_id == done.id and back.usage.input_tokens > done.usage.input_tokens
    third = client.responses.create(model="default", previous_response_id=back.id, input="Thanks",
                                    max_output_tokens=8, tools=[FLAT_TOOL])
    assert third.usage.input_tokens > back.usage.input_tokens
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="default", previous_response_id="resp_unknown", input="Thanks")


def test_async_clients(server):
    """Twenty streams at once from one program, of both clients; each is whole."""
    import asyncio
    anthropic = pytest.importorskip("anthropic", reason="the Anthropic client is not installed")

    async def one(i):
        ask = {"model": "default", "max_tokens": 12,
               "messages": [{"role": "user", "content": f"What is 12 + {i // 2}?"}]}
        more = {"temperature": 0}
        if i % 2:
            async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none") as c:
                stream = await c.chat.completions.create(**ask, stream=True, extra_body=more)
                return "".join([x.choices[0].delta.content or "" async for x in stream])
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none") as c:
            async with c.messages.stream(**ask, extra_body=more) as stream:
                return "".join([x async for x in stream.text_stream])

    async def all_of_them():
        return await asyncio.gather(*[one(i) for i in range(20)])

    texts = asyncio.run(all_of_them())
    assert texts[::2] == texts[1::2] and len(set(texts)) > 3, texts
