"""return_token_ids: prompt and answer by the numbers of their tokens, streamed and not."""

import pytest

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
BOTH = (CHAT, COMPLETIONS)
ASK = {CHAT: {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
       COMPLETIONS: {"prompt": "Once there was a"}}


def body(route, **more):
    return {**ASK[route], "temperature": 0, "max_tokens": 30, "return_token_ids": True, **more}


def prompt_of(server, route):
    if route == COMPLETIONS:
        return server.json("POST", "/tokenize", {"prompt": ASK[route]["prompt"], "add_special_tokens": True})["tokens"]
    return server.json("POST", "/tokenize", {**ASK[route], "add_generation_prompt": True})["tokens"]


def check(server, route, asked, n_prompts=1):
    """-> the answer, of which the stream says the same; each token that is counted is there once."""
    whole = server.json("POST", route, asked)
    choices = whole["choices"]
    assert sum(len(c["token_ids"]) for c in choices) == whole["usage"]["completion_tokens"]
    events = server.events(route, asked)
    ids, prompts = [[] for _ in choices], [[] for _ in choices]
    for event in events:
        (choice,) = event["choices"]
        ids[choice["index"]] += choice.get("token_ids", [])
        if "prompt_token_ids" in choice:
            prompts[choice["index"]].append(choice["prompt_token_ids"])
    assert ids == [c["token_ids"] for c in choices]
    if route == CHAT:
        assert [i for i, e in enumerate(events) if "prompt_token_ids" in e] == [0]
        assert events[0]["prompt_token_ids"] == whole["prompt_token_ids"]
        assert not any("prompt_token_ids" in c for c in choices) and not any(prompts)
    else:
        assert prompts == [[c["prompt_token_ids"]] for c in choices]
        assert "prompt_token_ids" not in whole
    return whole


@pytest.mark.parametrize("route", BOTH)
@pytest.mark.parametrize("more", [{}, {"n": 3, "temperature": 1, "seed": 4}, {"ignore_eos": True},
                                  {"return_tokens": True, "logprobs": 1}, {"max_tokens": 1}])
def test_ids(server, route, more):
    if "logprobs" in more and route == CHAT:
        more = {**more, "logprobs": True}
    whole = check(server, route, body(route, **more))
    prompt = prompt_of(server, route)
    for choice in whole["choices"]:
        assert (choice if route == COMPLETIONS else whole)["prompt_token_ids"] == prompt
        text = choice["text"] if route == COMPLETIONS else choice["message"]["content"]
        ended = choice["finish_reason"] == "stop"
        shown = choice["token_ids"][:-1] if ended else choice["token_ids"]
        if "tokens" in choice:
            assert choice["tokens"] == shown
        decoded = server.json("POST", "/detokenize", {"tokens": shown})["content"]
        for name in ("<|im_end|>", "<|endoftext|>") if more.get("ignore_eos") else ():
            decoded = decoded.replace(name, "")
        assert decoded == text
    assert whole["usage"]["prompt_tokens"] == len(prompt)


def test_the_end_is_among_them(server):
    whole = check(server, CHAT, body(CHAT))
    (choice,) = whole["choices"]
    assert choice["finish_reason"] == "stop"
    asked = body(CHAT, ignore_eos=True)
    assert check(server, CHAT, asked)["choices"][0]["token_ids"][:len(choice["token_ids"])] == choice["token_ids"]
    stop = choice["token_ids"][2]
    stopped = check(server, CHAT, body(CHAT, stop_token_ids=[stop]))["choices"][0]
    assert stopped["token_ids"] == choice["token_ids"][:choice["token_ids"].index(stop) + 1]


@pytest.mark.parametrize("route", BOTH)
def test_tokens_of_a_stop_string_are_counted(server, route):
    """They are cut off the text; no chunk tells of them before the end does."""
    free = check(server, route, body(route, ignore_eos=True))["choices"][0]
    text = free["text"] if route == COMPLETIONS else free["message"]["content"]
    for begin in (0, 3, 8):
        asked = body(route, ignore_eos=True, stop=text[begin:begin + 9])
        choice = check(server, route, asked)["choices"][0]
        n = len(choice["token_ids"])
        assert choice["token_ids"] == free["token_ids"][:n] and choice["finish_reason"] == "stop"
        shown = choice["text"] if route == COMPLETIONS else choice["message"]["content"]
        assert shown == text[:text.index(asked["stop"])]


def test_each_prompt(server):
    asked = {"prompt": ["Once there", "a cat sat", [5, 6, 7]], "n": 2, "max_tokens": 4, "return_token_ids": True}
    choices = check(server, COMPLETIONS, {**asked, "seed": 1})["choices"]
    assert [c["prompt_token_ids"] for c in choices[4:]] == [[5, 6, 7]] * 2
    assert choices[0]["prompt_token_ids"] == choices[1]["prompt_token_ids"] != choices[2]["prompt_token_ids"]
    for more in ({"echo": True}, {"echo": True, "logprobs": 0}):
        echoed = check(server, COMPLETIONS, {**asked, "seed": 1, **more})["choices"]
        assert [c["token_ids"] for c in echoed] == [c["token_ids"] for c in choices]
    alone = server.json("POST", COMPLETIONS, {"prompt": [5, 6], "echo": True, "max_tokens": 0, "return_token_ids": True})
    assert (alone["choices"][0]["prompt_token_ids"], alone["choices"][0]["token_ids"]) == ([5, 6], [])


def test_ids_of_calls_and_usage(server):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    check(server, CHAT, body(CHAT, tools=[tool], tool_choice="required"))
    check(server, CHAT, body(CHAT, tools=[tool]))
    events = server.events(CHAT, body(CHAT, stream_options={"include_usage": True}))
    told = [i for e in events for c in e["choices"] for i in c.get("token_ids", [])]
    assert events[-1]["usage"]["completion_tokens"] == len(told)


def test_nobody_else_gets_them(server):
    for route in BOTH:
        for more in ({}, {"return_token_ids": False}, {"return_token_ids": None}):
            text = server.request("POST", route, {**body(route), "return_token_ids": None, **more})[2].decode()
            assert "token_ids" not in text
    asked = {"input": "hi", "max_output_tokens": 16, "return_token_ids": True}
    error = server.json("POST", "/v1/responses", asked, status=400)["error"]
    assert error["param"] == "return_token_ids"


# --- skip_special_tokens --------------------------------------------------------------------------

def text_of(choice):
    return choice["text"] if "text" in choice else choice["message"]["content"]


def end_of(server):
    return server.json("POST", "/tokenize", {"content": "<|im_end|>", "parse_special": True})["tokens"][-1]


def streamed(server, route, asked):
    texts = {}
    for event in server.events(route, asked):
        (choice,) = event["choices"]
        text = choice["text"] if route == COMPLETIONS else choice["delta"].get("content") or ""
        texts[choice["index"]] = texts.get(choice["index"], "") + text
    return [texts[i] for i in sorted(texts)]


@pytest.mark.parametrize("route", BOTH)
@pytest.mark.parametrize("more", [{}, {"return_tokens": True}, {"n": 2, "temperature": 1, "seed": 2}])
def test_special_tokens_in_the_text(server, route, more):
    """Control tokens that do not end an answer stand in it, the same streamed as not."""
    asked = {**ASK[route], "temperature": 0, "max_tokens": 30, "ignore_eos": True, "return_token_ids": True,
             "logit_bias": {str(end_of(server)): 12}, **more}
    hidden = server.json("POST", route, asked)["choices"]
    shown = server.json("POST", route, {**asked, "skip_special_tokens": False})["choices"]
    assert any("<|im_end|>" in text_of(c) for c in shown)
    for before, after in zip(hidden, shown, strict=True):
        assert before["token_ids"] == after["token_ids"]
        assert text_of(after) == server.json("POST", "/detokenize", {"tokens": after["token_ids"]})["content"]
        assert "<|" not in text_of(before)
    del asked["return_token_ids"]
    assert streamed(server, route, {**asked, "skip_special_tokens": False}) == [text_of(c) for c in shown]
    assert streamed(server, route, {**asked, "skip_special_tokens": True}) == [text_of(c) for c in hidden]


def test_an_end_that_ends_is_not_shown(server):
    asked = body(CHAT)
    free = server.json("POST", CHAT, asked)["choices"][0]
    assert free["finish_reason"] == "stop"
    assert server.json("POST", CHAT, {**asked, "skip_special_tokens": False})["choices"][0] == free


def test_a_special_token_stops(server):
    """What stands in the text is found there; offsets of tokens count it."""
    asked = {**body(CHAT), "ignore_eos": True, "skip_special_tokens": False}
    full = text_of(server.json("POST", CHAT, asked)["choices"][0])
    for stop in ("<|im_end|>", "_end|>", ".<|im"):
        assert stop in full
        choice = check(server, CHAT, {**asked, "stop": stop})["choices"][0]
        assert (text_of(choice), choice["finish_reason"]) == (full[:full.index(stop)], "stop")
        assert streamed(server, CHAT, {**asked, "stop": stop}) == [text_of(choice)]
    end = end_of(server)
    only = {"prompt": [end], "max_tokens": 8, "allowed_token_ids": [end], "ignore_eos": True, "skip_special_tokens": False}
    (choice,) = server.json("POST", COMPLETIONS, {**only, "logprobs": 0})["choices"]
    assert choice["text"] == "<|im_end|>" * 8
    assert choice["logprobs"]["text_offset"] == [10 * i for i in range(8)]
    responses = {"input": "hi", "max_output_tokens": 16, "allowed_token_ids": [end], "ignore_eos": True}
    answer = server.json("POST", "/v1/responses", {**responses, "skip_special_tokens": False})
    assert answer["output"][-1]["content"][0]["text"] == "<|im_end|>" * 16


def named(ids):
    return [f"token_id:{i}" for i in ids]


def test_tokens_as_ids_of_completions(server):
    """return_tokens_as_token_ids: what is named by texts is named by numbers, each with its own key."""
    asked = body(COMPLETIONS, logprobs=5, echo=True, max_tokens=6)
    texts = server.json("POST", COMPLETIONS, asked)["choices"][0]
    asked["return_tokens_as_token_ids"] = True
    choice = server.json("POST", COMPLETIONS, asked)["choices"][0]
    lists = choice["logprobs"]
    assert lists["tokens"] == named(choice["prompt_token_ids"] + choice["token_ids"])
    for name in ("token_logprobs", "text_offset"):
        assert lists[name] == texts["logprobs"][name]
    for top, token, own in list(zip(lists["top_logprobs"], lists["tokens"], lists["token_logprobs"]))[1:]:
        assert top[token] == own and 5 <= len(top) <= 6 and all(k.startswith("token_id:") for k in top)
    streamed = [e["choices"][0]["logprobs"] for e in server.events(COMPLETIONS, asked)]
    assert sum((x["tokens"] for x in streamed if x), []) == lists["tokens"]


def test_tokens_as_ids_of_chats(server):
    asked = body(CHAT, logprobs=True, top_logprobs=2, max_tokens=6)
    texts = server.json("POST", CHAT, asked)["choices"][0]["logprobs"]["content"]
    choice = server.json("POST", CHAT, {**asked, "return_tokens_as_token_ids": True})["choices"][0]
    content = choice["logprobs"]["content"]
    assert [t["token"] for t in content] == named(choice["token_ids"])
    for one, text in zip(content, texts):
        assert one["bytes"] == text["bytes"] and one["logprob"] == text["logprob"]
        assert one["top_logprobs"][0]["token"] == one["token"]
    refused = {"input": "a", "return_tokens_as_token_ids": True}
    assert server.json("POST", "/v1/responses", refused, status=400)["error"]["param"] == "return_tokens_as_token_ids"
