"""prompt_logprobs: how likely each token of the prompt is, in vLLM's shape."""

import pytest

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
TEXT = {"prompt": "Once there was a 猫"}


def echoed(server, ids):
    """-> of each place but the first, what `echo` with `logprobs` says of it."""
    lists = server.json("POST", COMPLETIONS, {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 20})
    lists = lists["choices"][0]["logprobs"]
    return list(zip(lists["token_logprobs"], lists["top_logprobs"]))[1:]


def check(server, ids, places, n_top):
    """That they are what an echo has, by other names."""
    assert len(places) == len(ids) and places[0] is None
    for token, place, (logprob, top) in zip(ids[1:], places[1:], echoed(server, ids)):
        own, *others = place.items()
        assert own[0] == str(token) and own[1]["logprob"] == logprob
        ranks = [one["rank"] for one in place.values()]
        assert ranks[1:] == [rank for rank in range(1, n_top + 1) if rank != ranks[0]]
        ordered = sorted(top.values(), reverse=True)
        for token_id, one in place.items():
            assert one.keys() == {"logprob", "rank", "decoded_token"}
            if one["rank"] <= 20:
                assert one["logprob"] == ordered[one["rank"] - 1]
            text = server.json("POST", "/detokenize", {"tokens": [int(token_id)]})["content"]
            if text: # a control token stands for none
                assert one["decoded_token"] == text
        assert ranks[0] <= 20 or logprob == ordered[-1]


@pytest.mark.parametrize("n_top", [0, 1, 5, 20])
def test_completions(server, n_top):
    body = {**TEXT, "max_tokens": 3, "temperature": 0, "return_token_ids": True}
    plain = server.json("POST", COMPLETIONS, body)["choices"][0]
    choice = server.json("POST", COMPLETIONS, {**body, "prompt_logprobs": n_top})["choices"][0]
    check(server, choice["prompt_token_ids"], choice.pop("prompt_logprobs"), n_top)
    assert choice == plain # nothing else changes


@pytest.mark.parametrize("n_top", [0, 3])
def test_chat(server, n_top):
    body = {**MESSAGES, "max_tokens": 3, "temperature": 0, "return_token_ids": True}
    plain = server.json("POST", CHAT, body)
    answer = server.json("POST", CHAT, {**body, "prompt_logprobs": n_top})
    check(server, answer["prompt_token_ids"], answer["prompt_logprobs"], n_top)
    assert answer["choices"] == plain["choices"] and "prompt_logprobs" not in plain


def test_ranks_of_all(server):
    """The ranks of different tokens at one place are different places of one order."""
    n_vocab = server.json("GET", "/v1/models")["data"][0]["meta"]["n_vocab"]
    seen = []
    for first in range(0, n_vocab, 128):
        ids = range(first, min(first + 128, n_vocab))
        answer = server.json("POST", COMPLETIONS, {"prompt": [[5, i] for i in ids], "max_tokens": 0,
                                                   "prompt_logprobs": 0})
        for i, choice in zip(ids, answer["choices"]):
            (one,) = choice["prompt_logprobs"][1].values()
            seen.append((one["rank"], one["logprob"], i))
    assert sorted(rank for rank, _, _ in seen) == list(range(1, n_vocab + 1))
    logprobs = [logprob for _, logprob, _ in sorted(seen)]
    assert logprobs == sorted(logprobs, reverse=True)


def test_beside_logprobs_of_the_answer(server):
    """Each number of most likely tokens is its own, and an echo's is the answer's."""
    for own, n_top in ((2, 5), (5, 2), (0, 3)):
        asked = {**TEXT, "max_tokens": 4, "temperature": 0, "return_token_ids": True, "logprobs": own, "echo": True}
        both = server.json("POST", COMPLETIONS, {**asked, "prompt_logprobs": n_top})["choices"][0]
        check(server, both["prompt_token_ids"], both.pop("prompt_logprobs"), n_top)
        assert both == server.json("POST", COMPLETIONS, asked)["choices"][0]
        asked = {**MESSAGES, "max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": own}
        chat = server.json("POST", CHAT, {**asked, "prompt_logprobs": n_top})
        assert chat["choices"] == server.json("POST", CHAT, asked)["choices"]


def test_several_answers(server):
    """They are computed once for each prompt, and the answers are those without them."""
    asked = {"prompt": ["Once there was a", "The cat"], "n": 3, "max_tokens": 4, "seed": 3, "return_token_ids": True}
    answer = server.json("POST", COMPLETIONS, {**asked, "prompt_logprobs": 1})
    for choice in answer["choices"]:
        check(server, choice["prompt_token_ids"], choice.pop("prompt_logprobs"), 1)
    assert answer["choices"] == server.json("POST", COMPLETIONS, asked)["choices"]
    queries = server.metric("weir_prefix_cache_queries_total")
    server.json("POST", COMPLETIONS, {**asked, "prompt": [5, 6, 7], "prompt_logprobs": 0})
    assert server.metric("weir_prefix_cache_queries_total") == queries + 2 * 3
    chat = server.json("POST", CHAT, {**MESSAGES, "n": 3, "max_tokens": 4, "prompt_logprobs": 0})
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]


def test_too_many(start_server):
    """Answers repeat them, but those of a chat, so they are bounded before anything is computed."""
    server = start_server("--context", 4096)
    asked = {"prompt": [5] * 4000, "max_tokens": 0, "prompt_logprobs": 20, "n": 128}
    error = server.json("POST", COMPLETIONS, asked, status=400)["error"]
    assert error["param"] == "prompt_logprobs" and str(128 * 4000 * 21) in error["message"]
    echo = {"prompt": [5] * 4000, "max_tokens": 0, "echo": True, "logprobs": 20, "n": 100}
    error = server.json("POST", COMPLETIONS, echo, status=400)["error"]
    assert error["param"] == "logprobs" and str(100 * 4000 * 21) in error["message"]
    server.json("POST", COMPLETIONS, {**echo, "n": 2})
    chat = {"messages": [{"role": "user", "content": "a " * 3500}], "max_tokens": 0, "prompt_logprobs": 20, "n": 128}
    answer = server.json("POST", CHAT, chat)
    assert len(answer["choices"]) == 128 and 128 * 21 * len(answer["prompt_logprobs"]) > 8388608


@pytest.mark.parametrize("route, asked", [(CHAT, MESSAGES), (COMPLETIONS, TEXT)])
def test_a_prompt_alone(server, route, asked):
    """max_tokens 0: no token is drawn, shown or counted."""
    answer = server.json("POST", route, {**asked, "max_tokens": 0, "prompt_logprobs": 2, "return_token_ids": True})
    choice = answer["choices"][0]
    places = (answer if route == CHAT else choice)["prompt_logprobs"]
    assert len(places) == answer["usage"]["prompt_tokens"] and answer["usage"]["completion_tokens"] == 0
    assert choice["token_ids"] == [] and choice["finish_reason"] == "length"
    assert (choice["message"]["content"] if route == CHAT else choice["text"]) == ""
    server.json("POST", route, {**asked, "max_tokens": 0}, status=400)


@pytest.mark.parametrize("path, body", [
    (CHAT, {**MESSAGES, "stream": True, "max_tokens": 4}), (COMPLETIONS, {**TEXT, "stream": True}), ("/completion", {**TEXT, "n_predict": 4}),
    ("/v1/chat/completions/stream", {**MESSAGES, "max_tokens": 4}), ("/v1/responses", {"input": "a", "max_output_tokens": 4}),
    ("/v1/messages", {**MESSAGES, "max_tokens": 4})])
def test_where_it_is_not(server, path, body):
    assert server.request("POST", path, {**body, "prompt_logprobs": None})[0] == 200
    error = server.json("POST", path, {**body, "prompt_logprobs": 0}, status=400)["error"]
    assert "prompt_logprobs" in error["message"]
