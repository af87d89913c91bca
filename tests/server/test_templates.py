"""Templates of other models, and the formats that they give away: tools and reasoning through a real server."""

import json
import re
import struct
import subprocess
from pathlib import Path

import pytest

from conftest import MODEL, ROOT, WEIR, few
from tools import CHAT, COUNT, ask, check_shape


def with_template(path, template):
    """The model's file with another chat template, of any length: metadata is written anew."""
    data = Path(MODEL).read_bytes()
    key = b"tokenizer.chat_template"
    at = data.index(struct.pack("<Q", len(key)) + key)
    begin = at + 8 + len(key) + 4
    (old,) = struct.unpack_from("<Q", data, begin)
    align = 32
    end = begin + 8 + old
    new = template.encode()
    # tensors' data begin at a multiple of 32: the difference is made up with a comment
    pad = (old - len(new)) % align
    new += b"{#" + b" " * ((pad - 4) % align) + b"#}"
    Path(path).write_bytes(data[:begin] + struct.pack("<Q", len(new)) + new + data[end:])
    return str(path)


def with_tool_use(path, template):
    """The file with a template for requests with tools behind the other."""
    data = Path(path).read_bytes()
    key, more = b"tokenizer.chat_template", b"tokenizer.chat_template.tool_use"
    at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4
    at += 8 + struct.unpack_from("<Q", data, at)[0]
    text = template.encode()
    entry = 8 + len(more) + 4 + 8
    text += b"{#" + b" " * ((-(entry + len(text)) - 4) % 32) + b"#}"
    (n,) = struct.unpack_from("<Q", data, 16)
    Path(path).write_bytes(
        data[:16] + struct.pack("<Q", n + 1) + data[24:at] + struct.pack("<Q", len(more)) + more
        + struct.pack("<IQ", 8, len(text)) + text + data[at:])
    return str(path)


CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
          "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|im_start|>assistant\\n' }}{% endif %}")


# One template for each format: its marks, and nothing else of the models that it is from.
FORMATS = {
    "hermes": "<tool_call> arguments", "llama3": "<|start_header_id|>ipython",
    "mistral": "[TOOL_CALLS]", "functionary-v3.1": "<function=", "functionary-v3.2": ">>>all",
    "deepseek": "<｜tool▁calls▁begin｜>", "deepseek-v3.2": "｜DSML｜ function_calls>",
    "harmony": "<|channel|> <|message|>", "muse": "<atem:function_calls> <|eom|>", "kimi": "<|tool_call_begin|>",
    "qwen-xml": "<function= <parameter=", "glm": "<tool_call> <arg_key>",
    "granite": "<|tool_call|>", "lfm2": "<|tool_list_start|>", "gemma": "<|tool_call>call:",
    "seed": "<seed:tool_call> <parameter=", "nemotron": "<TOOLCALL>",
}


@pytest.mark.parametrize("name", FORMATS)
def test_required_in_every_format(start_server, tmp_path, name):
    template = "{# " + FORMATS[name] + " #}{% if tools %}{% endif %}" + CHATML
    server = start_server("-m", with_template(tmp_path / "m.gguf", template))
    server.wait_log(f"(tools {name},")
    body = ask("Who are you?", tools=[COUNT], tool_choice="required", temperature=1.5, seed=3,
               parallel_tool_calls=False)
    (answer,) = server.json("POST", CHAT, body)["choices"]
    assert answer["finish_reason"] == "tool_calls", answer
    (call,) = answer["message"]["tool_calls"]
    assert call["function"]["name"] == "count" and answer["message"]["content"] is None
    assert json.loads(call["function"]["arguments"])["unit"] in ("day", "week")
    assert len(call["id"]) == (9 if name == "mistral" else 29) or name == "kimi"
    assert check_shape(server.events(CHAT, body)) == {0: call["function"]["arguments"]}


def test_template_with_tools(start_server, tmp_path):
    """A template that writes tools itself gets them, and arguments as it wants them."""
    template = ("{% if tools %}{{ '<|im_start|>system\\n' }}{% for t in tools %}"
                "{{ t | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}"
                "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
                "{{ '<tool_call>{\"name\": \"' + c.function.name + '\", \"arguments\": ' + "
                "c.function.arguments | tojson + '}</tool_call>' }}{% endfor %}{% endif %}"
                "{% endfor %}" + CHATML)
    server = start_server("-m", with_template(tmp_path / "m.gguf", template))
    server.wait_log("(tools hermes, reasoning none)")
    bare = server.json("POST", CHAT, ask(tools=None))["usage"]["prompt_tokens"]
    assert server.json("POST", CHAT, ask())["usage"]["prompt_tokens"] > bare + 50


def test_reasoning(start_server, tmp_path):
    """What the template opens is closed by the model, or by nothing: the limit."""
    template = CHATML[:-len("{% endif %}")] + "{{ '<think>\\n' }}{% endif %}{# </think> #}"
    path = with_template(tmp_path / "m.gguf", template)
    body = {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "temperature": 0,
            "max_tokens": 12, "ignore_eos": True}
    server = start_server("-m", path)
    server.wait_log("reasoning think")
    (choice,) = server.json("POST", CHAT, body)["choices"]
    assert choice["message"]["reasoning_content"] and choice["message"]["content"] == ""
    events = server.events(CHAT, body)
    check_shape(events)
    streamed = "".join(e["choices"][0]["delta"].get("reasoning_content", "") for e in events)
    assert streamed == choice["message"]["reasoning_content"]
    server = start_server("-m", path, "--reasoning-format", "none")
    (plain,) = server.json("POST", CHAT, body)["choices"]
    assert "reasoning_content" not in plain["message"]
    assert plain["message"]["content"].strip() == streamed.strip()


def test_a_request_says_where_reasoning_goes(start_server, tmp_path):
    template = CHATML[:-len("{% endif %}")] + "{{ '<think>\\n' }}{% endif %}{# </think> #}"
    path = with_template(tmp_path / "m.gguf", template)
    server = start_server("-m", path)
    body = {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "temperature": 0, "max_tokens": 40,
            "ignore_eos": True, "return_tokens": True, "reasoning_budget_tokens": 7}

    def ask(of=server, status=200, **more):
        return of.json("POST", CHAT, {**body, **more}, status=status)

    def streamed(**more):
        """The message, and the tokens of all chunks."""
        said, tokens = {}, []
        for e in server.events(CHAT, {**body, **more}):
            for choice in e["choices"]:
                tokens += choice.get("tokens", [])
                for field, text in choice["delta"].items():
                    said[field] = said.get(field, "") + (text or "")
        return said, tokens

    usual = ask()["choices"][0]
    assert usual["message"]["reasoning_content"] and usual["message"]["content"]
    plain = ask(start_server("-m", path, "--reasoning-format", "none"), reasoning_budget_tokens=None, max_tokens=7)
    for more, has, content in (
            ({"reasoning_format": "auto"}, True, usual["message"]["content"]),
            ({"reasoning_format": "deepseek", "separate_reasoning": True}, True, usual["message"]["content"]),
            ({"include_reasoning": False}, False, usual["message"]["content"]),
            ({"reasoning_format": "none"}, False, None), ({"separate_reasoning": False}, False, None)):
        got = ask(**more)
        (choice,) = got["choices"]
        assert choice["tokens"] == usual["tokens"]  # the budget holds, wherever they go
        assert ("reasoning_content" in choice["message"]) is has
        said, tokens = streamed(**more)
        assert ("reasoning_content" in said) is has and tokens == usual["tokens"]
        assert said["content"] == choice["message"]["content"]
        if content is None:
            assert "</think>" in said["content"]
            assert said["content"].startswith(plain["choices"][0]["message"]["content"])
        else:
            assert said["content"] == content and got["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    for more in ({"reasoning_format": "deepseek-legacy"}, {"reasoning_format": 1}, {"include_reasoning": "no"}):
        assert ask(status=400, **more)["error"]["param"] == list(more)[0]


def test_reasoning_has_a_budget(start_server, tmp_path):
    """So many tokens, then the mark that ends it is put, and the model has to answer."""
    template = CHATML[:-len("{% endif %}")] + "{{ '<think>\\n' }}{% endif %}{# </think> #}"
    server = start_server("-m", with_template(tmp_path / "m.gguf", template))
    body = {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "temperature": 0, "max_tokens": 60,
            "ignore_eos": True, "return_tokens": True}

    def ask(**more):
        return server.json("POST", CHAT, {**body, **more})["choices"][0]

    free = ask()
    mark = server.json("POST", "/tokenize", {"content": "</think>"})["tokens"]
    assert free["message"]["content"] == "" and len(free["tokens"]) == 60
    for n in (0, 1, 7, 20):
        for field in ("reasoning_budget_tokens", "thinking_budget_tokens", "thinking_token_budget"):
            got = ask(**{field: n})
            assert got["tokens"][:n] == free["tokens"][:n] and got["tokens"][n:n + len(mark)] == mark
            assert got["message"]["content"] and len(got["tokens"]) == 60
            assert bool(got["message"].get("reasoning_content")) is (n > 1)  # white space is none
    assert ask(reasoning_budget_tokens=-1) == ask(reasoning_budget_tokens=1000) == free
    chunks = server.events(CHAT, {**body, "reasoning_budget_tokens": 7})
    streamed = "".join(e["choices"][0]["delta"].get("content") or "" for e in chunks)
    assert streamed == ask(reasoning_budget_tokens=7)["message"]["content"]
    formed = ask(reasoning_budget_tokens=5, response_format={"type": "json_object"}, ignore_eos=False,
                 max_tokens=200)
    assert formed["tokens"][5:5 + len(mark)] == mark and formed["message"]["content"].startswith("{")
    server.json("POST", CHAT, {**body, "reasoning_budget_tokens": -2}, status=400)
    blocks = server.json("POST", "/v1/messages", {
        "messages": body["messages"], "max_tokens": 60, "temperature": 0, "ignore_eos": True,
        "thinking": {"type": "enabled", "budget_tokens": 7}})["content"]
    assert [b["type"] for b in blocks] == ["thinking", "text"]
    server.json("POST", "/v1/messages", {
        "messages": body["messages"], "max_tokens": 60,
        "thinking": {"type": "enabled", "budget_tokens": "7"}}, status=400)
    begun = {**body, "messages": body["messages"] + [{"role": "assistant", "content": "It is"}]}
    error = server.json("POST", CHAT, {**begun, "continue_final_message": True}, status=400)["error"]
    assert error["param"] == "continue_final_message" and "reason" in error["message"]


def test_templates_of_the_operator(start_server, tmp_path):
    """--chat-template-file and --reasoning: the first in the place of the model's, the second behind
    what a request says."""
    file = tmp_path / "own.jinja"
    file.write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}{{ enable_thinking }} {{ thinking }}")
    ask = {"messages": [{"role": "user", "content": "hi"}]}

    def prompt(server, **more):
        return server.json("POST", "/apply-template", {**ask, **more})["prompt"]

    def n_input(server, **more):
        return server.json("POST", "/v1/chat/completions/input_tokens", {**ask, **more})["input_tokens"]

    for flag, default in (("on", "True"), ("off", "False"), ("auto", "")):
        server = start_server("--chat-template-file", file, "--reasoning", flag)
        # a template that never asks whether enable_thinking is defined has it as true
        assert prompt(server) == f"[hi]{default or True} {default}"
        for given in (True, False):
            kwargs = {"chat_template_kwargs": {"enable_thinking": given}}
            assert prompt(server, **kwargs) == f"[hi]{given} {default}"
            kind = {"type": "enabled" if given else "disabled"}
            shown = server.json("POST", "/v1/messages/count_tokens", {**ask, "thinking": kind})
            both = {"chat_template_kwargs": {"enable_thinking": given, "thinking": given}}
            assert shown["input_tokens"] == n_input(server, **both)
            kept = {"thinking": {"type": "disabled"}, "chat_template_kwargs": {"thinking": given}}
            shown = server.json("POST", "/v1/messages/count_tokens", {**ask, **kept})
            both = {"chat_template_kwargs": {"enable_thinking": False, "thinking": given}}
            assert shown["input_tokens"] == n_input(server, **both)
        # not to think at all is said by both names, but for what the client says itself
        assert prompt(server, reasoning_effort="none") == "[hi]False False"
        assert prompt(server, reasoning_effort="low") == "[hi]True True"  # how hard is nothing it can hear
        assert prompt(server, reasoning_effort="") == prompt(server)
        said = {"reasoning_effort": "none", "chat_template_kwargs": {"thinking": "yes"}}
        assert prompt(server, **said) == "[hi]False yes"
        shown = server.json("POST", "/v1/responses/input_tokens", {"input": "hi", "reasoning": {"effort": "none"}})
        assert shown["input_tokens"] == n_input(server, reasoning_effort="none")
        assert server.json("GET", "/props")["chat_template"] == file.read_text()
    for text, words in (("{% if %}", "1"), ("", "empty")):
        file.write_text(text)
        done = subprocess.run([WEIR, "serve", "-m", MODEL, "--port", "0", "--chat-template-file", file],
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 1 and "--chat-template-file" in done.stderr and words in done.stderr


def test_a_template_that_cannot_be_run(start_server, tmp_path):
    """The start says so and why, and so does each route of chats; whole prompts are answered."""
    server = start_server("-m", with_template(tmp_path / "m.gguf", "x\n{% if %}"))
    assert server.log.count("the chat template cannot be run, so the chat route will refuse: line 2") == 1
    messages = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    for path, body in ((CHAT, messages), ("/v1/messages", messages), ("/v1/responses", {"input": "hi"}),
                       ("/apply-template", messages)):
        said = server.json("POST", path, body, status=501)["error"]["message"]
        assert "chat template cannot be run (line 2" in said and "/v1/completions" in said, path
    answer = server.json("POST", "/v1/completions", {"prompt": "hi", "max_tokens": 2})
    assert answer["choices"][0]["finish_reason"]


def test_template_for_tools(start_server, tmp_path):
    """A file may have a second template: that of requests which may call tools."""
    path = with_template(tmp_path / "m.gguf", "plain{{ messages[-1].content }}")
    with_tool_use(path, "{% for t in tools %}{{ t.function.name }}{% endfor %}{# [TOOL_CALLS] #}"
                        "{{ reasoning_effort }}{{ messages[-1].content }}")
    tools = ask()["tools"]

    def prompt(server, **more):
        return server.json("POST", "/apply-template", {"messages": [{"role": "user", "content": "hi"}], **more})["prompt"]

    server = start_server("-m", path)
    names = "".join(t["function"]["name"] for t in tools)
    assert prompt(server) == prompt(server, tools=[]) == prompt(server, tools=tools, tool_choice="none") == "plainhi"
    assert prompt(server, tools=tools) == names + "hi"
    assert prompt(server, tools=tools, reasoning_effort="low") == names + "lowhi"  # a variable of this one alone
    assert prompt(server, reasoning_effort="low") == "plainhi"  # which says nothing to the other
    (choice,) = server.json("POST", CHAT, ask(tool_choice="required", max_tokens=200))["choices"]
    assert len(choice["message"]["tool_calls"][0]["id"]) == 9  # as the second's format has them
    server = start_server("-m", path, "--chat-template", "own {{ messages[-1].content }}")
    assert prompt(server) == "own hi" and prompt(server, tools=tools).startswith("own You have these tools")
    with_tool_use(with_template(path, "plain{{ messages[-1].content }}"), "{% if %}")
    server = start_server("-m", path)
    assert prompt(server, tools=tools).startswith("plainYou have these tools")


def test_unknown_format(start_server, tmp_path):
    """A template that writes tools in a way that nobody knows: an answer must not hide calls."""
    path = with_template(tmp_path / "m.gguf", "{{ tools }}" + CHATML)
    server = start_server("-m", path)
    error = server.json("POST", CHAT, ask(), status=400)["error"]
    assert error["param"] == "tools" and "--tool-format" in error["message"]
    server.json("POST", CHAT, ask(tool_choice="none"))
    server = start_server("-m", path, "--tool-format", "none")
    assert "tool_calls" not in server.json("POST", CHAT, ask())["choices"][0]["message"]
    server = start_server("-m", path, "--tool-format", "hermes")
    server.json("POST", CHAT, ask())


def test_flags():
    for flag in ("--tool-format", "--reasoning-format"):
        done = subprocess.run([WEIR, "serve", flag, "nothing"], capture_output=True, text=True)
        assert done.returncode == 2 and flag in done.stderr

ALL_FORMATS = re.findall(r'\{\.name = "([^"]+)",\s*\.', (ROOT / "src/chat/reply/formats.c").read_text())


PAINT = {"type": "function", "function": {"name": "paint", "parameters": {
    "type": "object", "properties": {"colour": {"enum": ["red", "blue"]}, "twice": {"type": "boolean"}},
    "required": ["colour", "twice"], "additionalProperties": False}}}


WASH = {"type": "function", "function": {"name": "wash", "parameters": {
    "type": "object", "properties": {"litres": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["litres"], "additionalProperties": False}}}


def is_call(name, arguments):
    v = json.loads(arguments)
    if name == "paint":
        return list(v) == ["colour", "twice"] and v["colour"] in ("red", "blue") and \
            type(v["twice"]) is bool
    return name == "wash" and list(v) == ["litres"] and v["litres"] in range(1, 10)


def test_the_formats_are_known():
    assert len(ALL_FORMATS) == 38 == len(set(ALL_FORMATS)), ALL_FORMATS


@pytest.mark.parametrize("name", ALL_FORMATS[::len(ALL_FORMATS) // few(len(ALL_FORMATS), 9)])
def test_every_format_streams_alike(start_server, name):
    """However a model writes calls, the deltas are OpenAI's, and together what comes whole."""
    server = start_server("--tool-format", name, "--threads", "1")
    named = {"type": "function", "function": {"name": "wash"}}
    for more in ({"tool_choice": "required"}, {"tool_choice": named},
                 {"tool_choice": "required", "parallel_tool_calls": False},
                 {"tool_choice": "auto"}, {"tool_choice": "none"}):
        body = {"messages": [{"role": "user", "content": "Hello"}], "tools": [PAINT, WASH], "seed": 5,
                "max_tokens": 300, **more}
        choice = server.json("POST", CHAT, body)["choices"][0]
        events = server.events(CHAT, body)
        calls = [c["function"] for c in choice["message"].get("tool_calls", [])]
        assert check_shape(events) == {i: c["arguments"] for i, c in enumerate(calls)}
        heads = [c["function"]["name"] for e in events
                 for c in e["choices"][0]["delta"].get("tool_calls", []) if "id" in c]
        assert heads == [c["name"] for c in calls]
        text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events)
        assert text == (choice["message"]["content"] or "")
        if more["tool_choice"] in ("auto", "none"):
            assert more["tool_choice"] == "auto" or not calls
            continue
        assert calls and not text
        ended = choice["finish_reason"] == "tool_calls"
        assert ended or choice["finish_reason"] == "length"  # a model may call again and again
        assert all(is_call(c["name"], c["arguments"]) for c in calls[:None if ended else -1])
        assert more["tool_choice"] != named or (ended and [c["name"] for c in calls] == ["wash"])
        assert "parallel_tool_calls" not in more or (ended and len(calls) == 1)


def prompt_of(server, messages, **more):
    return server.json("POST", "/apply-template", {"messages": messages, **more})["prompt"]


def test_templates_that_read_parts_alone(start_server, tmp_path):
    """Some models' that see say nothing of content that is a string: they get parts, from all messages."""
    file = tmp_path / "parts.jinja"
    file.write_text("{% for m in messages %}{{ m.role }}:{% for p in m.content %}{% if p.type == 'text' %}"
                    "{{ p.text }}{% endif %}{% endfor %}|{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")
    server = start_server("--chat-template-file", file)
    turns = [("system", "be brief"), ("user", "hi"), ("assistant", "ho"), ("user", [{"type": "text", "text": "go"}])]
    said = [{"role": role, "content": content} for role, content in turns]
    assert prompt_of(server, said) == "system:be brief|user:hi|assistant:ho|user:go|assistant:"


def test_a_turn_is_opened_behind_a_result(start_server, tmp_path):
    """Gemma 4's template leaves none open where the assistant spoke before its call: and only there."""
    file = tmp_path / "gemma.jinja"
    file.write_text("{% if tools %}{{ tools }}{% endif %}{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}"
                    "{% for t in m.tool_calls or [] %}<|tool_call>call:{{ t.function.name }}{}<tool_call|>{% endfor %}"
                    "<turn|>\n{% endfor %}{% if add_generation_prompt and messages[-1].role == 'user' %}"
                    "<|turn>model\n{% endif %}")
    server = start_server("--chat-template-file", file)
    ask = {"role": "user", "content": "q"}
    call = {"role": "assistant", "content": "so", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "r"}
    assert prompt_of(server, [ask]).endswith("q<turn|>\n<|turn>model\n")
    assert prompt_of(server, [ask, call, result]).endswith("r<turn|>\n<|turn>model\n")
    closed = prompt_of(server, [ask, call, result], add_generation_prompt=False)
    assert closed.endswith("r<turn|>\n")


def test_other_words_for_reasoning(start_server):
    """How hard to think is `reasoning_strength` to some; whether to keep earlier thoughts has four names."""
    server = start_server("--chat-template", "{{ reasoning_strength }}{{ messages[0].content }}{{ preserve_thinking }}"
                          "{{ clear_thinking }}{{ truncate_history_thinking }}{{ drop_thinking }}")
    ask = [{"role": "user", "content": "-"}]
    assert prompt_of(server, ask) == "-"
    assert prompt_of(server, ask, reasoning_effort="low") == "low-"
    kept = {"preserve_reasoning": True}
    assert prompt_of(server, ask, chat_template_kwargs=kept) == "-TrueFalseFalseFalse"
    assert prompt_of(server, ask, chat_template_kwargs={"preserve_reasoning": False}) == "-FalseTrueTrueTrue"
    assert prompt_of(server, ask, chat_template_kwargs={**kept, "clear_thinking": 1}) == "-True1FalseFalse"
    both = {"messages": ask, "reasoning_effort": "low", "chat_template_kwargs": {"reasoning_strength": "high"}}
    assert "reasoning_strength" in server.json("POST", "/apply-template", both, status=400)["error"]["message"]


def test_variables_of_a_request(start_server):
    """What a request says of its variables, the template reads; what means something already is refused."""
    server = start_server("--tool-format", "hermes", "--chat-template",
                          "{{ messages[0].content }} {{ enable_thinking }} {{ depth.most if depth }} "
                          "{% for d in documents or [] %}<{{ d.text }}>{% endfor %}"
                          "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}")
    ask, texts = [{"role": "user", "content": "-"}], [{"text": "a"}, {"text": "b"}]
    tools = [{"type": "function", "function": {"name": n}} for n in ("f", "g")]
    both = {"documents": texts, "tools": tools}
    assert prompt_of(server, ask) == "- True  "
    assert prompt_of(server, ask, chat_template_kwargs={**both, "enable_thinking": False,
                                                        "depth": {"most": 7}}) == "- False 7 <a><b>[f][g]"
    assert prompt_of(server, ask, **both) == "- True  <a><b>[f][g]"
    for name, more in (("documents", both), ("tools", both), ("messages", {}), ("bos_token", {}), ("eos_token", {})):
        body = {"messages": ask, **more, "chat_template_kwargs": {name: []}}
        said = server.json("POST", "/apply-template", body, status=400)["error"]["message"]
        assert f"'chat_template_kwargs' may not set '{name}'" in said
    server.json("POST", "/apply-template", {"messages": ask, "documents": ["a"]}, status=400)
