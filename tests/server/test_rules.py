"""What a request rules out of its answer."""

import pytest

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
BOTH = (CHAT, COMPLETIONS)
ASK = {CHAT: {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
       COMPLETIONS: {"prompt": "Once there was a"}}


def body(route, **more):
    return {**ASK[route], "max_tokens": 16, "ignore_eos": True, "return_tokens": True, **more}


def streamed(server, route, asked, n):
    """The ids of each choice of the stream."""
    ids = [[] for _ in range(n)]
    for event in server.events(route, asked):
        for choice in event["choices"]:
            ids[choice["index"]] += choice.get("tokens", [])
    return ids


def ids_of(server, route, asked):
    """Of each choice, the same streamed as not."""
    whole = [c["tokens"] for c in server.json("POST", route, asked)["choices"]]
    assert streamed(server, route, asked, len(whole)) == whole
    return whole


def error_of(server, route, asked, status=400):
    error = server.json("POST", route, asked, status=status)["error"]
    return error["param"], error["message"]


# --- allowed_token_ids ----------------------------------------------------------------------------

@pytest.mark.parametrize("route", BOTH)
@pytest.mark.parametrize("more", [{"temperature": 0}, {"temperature": 1.5, "seed": 3},
                                  {"temperature": 1.5, "seed": 3, "top_k": 40},
                                  {"temperature": 1, "seed": 3, "top_p": 0.9, "logprobs": True}])
def test_only_allowed_tokens_come(server, route, more):
    if more.get("logprobs") and route == COMPLETIONS:
        more = {**more, "logprobs": 2}
    allowed = [1, 64, 65, 300, 301, 500]
    asked = body(route, n=3, allowed_token_ids=allowed, **more)
    choices = ids_of(server, route, asked)
    assert [len(c) for c in choices] == [16] * 3
    assert {i for c in choices for i in c} <= set(allowed)
    assert choices == ids_of(server, route, asked)
    one = body(route, n=2, allowed_token_ids=[77] * 3, **more)
    assert ids_of(server, route, one) == [[77] * 16] * 2


@pytest.mark.parametrize("route", BOTH)
def test_all_tokens_allowed_change_nothing(server, route):
    n_vocab = server.json("GET", "/v1/models")["data"][0]["meta"]["n_vocab"]
    for more in ({"temperature": 0}, {"temperature": 1, "seed": 5, "n": 2}):
        free = ids_of(server, route, body(route, **more))
        for allowed in ([], None, list(range(n_vocab))):
            assert ids_of(server, route, body(route, allowed_token_ids=allowed, **more)) == free
        kept = sorted({i for c in free for i in c})
        if more["temperature"] == 0:
            assert ids_of(server, route, body(route, allowed_token_ids=kept, **more)) == free


def test_an_end_that_is_not_allowed_never_comes(server):
    asked = {**ASK[CHAT], "temperature": 0, "max_tokens": 24, "return_tokens": True}
    free = server.json("POST", CHAT, asked)["choices"][0]
    assert free["finish_reason"] == "stop" and len(free["tokens"]) < 20
    longer = server.json("POST", CHAT, {**asked, "allowed_token_ids": free["tokens"]})["choices"][0]
    assert longer["finish_reason"] == "length"
    assert longer["tokens"][:len(free["tokens"])] == free["tokens"] and len(longer["tokens"]) == 24


def test_allowed_tokens_and_a_grammar(server):
    """Both hold. What is complete ends, also where the end itself is not allowed."""
    digits = {d: server.json("POST", "/tokenize", {"content": d})["tokens"][-1] for d in "0123456789"}
    asked = body(COMPLETIONS, temperature=1, seed=1, regex="[0-9]{4}", ignore_eos=False)
    odd = [digits[d] for d in "13579"]
    for seed in range(4):
        choice = server.json("POST", COMPLETIONS, {**asked, "seed": seed, "allowed_token_ids": odd})["choices"][0]
        assert len(choice["text"]) == 4 and set(choice["text"]) <= set("13579")
        assert choice["finish_reason"] == "stop"
    letters = server.json("POST", "/tokenize", {"content": "a"})["tokens"]
    _, message = error_of(server, COMPLETIONS, {**asked, "allowed_token_ids": letters}, 501)
    assert "no token that is allowed" in message


def test_allowed_tokens_beside_others(start_server):
    """The company that a request has in a batch does not change what it may say, nor what others say."""
    server = start_server("--draft-tokens", 4)
    asked = body(COMPLETIONS, prompt=["Once there was a"] * 4, temperature=0, max_tokens=40)
    free = ids_of(server, COMPLETIONS, asked)
    only = ids_of(server, COMPLETIONS, {**asked, "allowed_token_ids": [64, 65, 66]})
    assert only == [only[0]] * 4 and set(only[0]) <= {64, 65, 66}
    assert ids_of(server, COMPLETIONS, asked) == free
    assert server.metric("weir_step_allocations_total") == 0


def test_allowed_tokens_of_responses(server):
    asked = {"input": "hi", "max_output_tokens": 16, "allowed_token_ids": [77], "store": False}
    text = server.json("POST", "/detokenize", {"tokens": [77] * 16})["content"]
    answer = server.json("POST", RESPONSES, asked)
    assert answer["output"][0]["content"][0]["text"] == text
    events = server.named_events(RESPONSES, asked)
    assert "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta") == text


@pytest.mark.parametrize("route", BOTH)
def test_ids_that_there_are_not(server, route):
    n_vocab = server.json("GET", "/v1/models")["data"][0]["meta"]["n_vocab"]
    for wrong in (-1, n_vocab, 2**40, -2**63):
        param, message = error_of(server, route, body(route, allowed_token_ids=[1, wrong]))
        assert param == "allowed_token_ids[1]" and f"token id {wrong} " in message
    param, message = error_of(server, route, body(route, allowed_token_ids=[1] * (n_vocab + 1)))
    assert param == "allowed_token_ids" and str(n_vocab + 1) in message


def test_min_tokens_of_nothing_but_ends(server):
    props = server.json("GET", "/props")
    end = server.json("POST", "/tokenize", {"content": props["eos_token"], "parse_special": True})["tokens"][-1]
    asked = {**ASK[COMPLETIONS], "max_tokens": 4, "allowed_token_ids": [end]}
    choice = server.json("POST", COMPLETIONS, asked)["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("", "stop")
    param, message = error_of(server, COMPLETIONS, {**asked, "min_tokens": 2})
    assert param == "min_tokens" and "each ends the answer" in message


# --- bad_words ------------------------------------------------------------------------------------

def tokens_of(server, text):
    return server.json("POST", "/tokenize", {"content": text})["tokens"]


def forms(server, word):
    """What tokens a word must not be."""
    bare, spaced = tokens_of(server, word.lstrip()), tokens_of(server, " " + word.lstrip())
    return [bare, spaced] if len(spaced) == len(bare) and spaced[0] != bare[0] else [bare]


def has(ids, bad):
    return any(ids[i:i + len(bad)] == bad for i in range(len(ids)))


@pytest.mark.parametrize("route", BOTH)
@pytest.mark.parametrize("more", [{"temperature": 0}, {"temperature": 1.2, "seed": 3, "n": 3}])
def test_bad_words_do_not_come(server, route, more):
    """Each word of the free answer is banned; each answer then goes on without it, and bans add up."""
    asked = body(route, **more, max_tokens=24)
    free = ids_of(server, route, asked)
    text = server.json("POST", "/detokenize", {"tokens": free[0]})["content"]
    banned = []
    for word in [w for w in text.split() if w.isalpha()][:5]:
        banned.append(word)
        for ids in ids_of(server, route, {**asked, "bad_words": banned}):
            assert not any(has(ids, bad) for w in banned for bad in forms(server, w))
    assert any(has(free[0], bad) for w in banned for bad in forms(server, w))
    assert ids_of(server, route, {**asked, "bad_words": ["zebra xylophone"]}) == free
    assert ids_of(server, route, {**asked, "bad_words": []}) == free


def test_a_bad_word_of_several_tokens(server):
    """Its last token alone is ruled out, and only behind the others: the answer is the same up to there."""
    asked = body(COMPLETIONS, temperature=0, max_tokens=24)
    (free,) = ids_of(server, COMPLETIONS, asked)
    n_tried = 0
    for at in range(1, 20):
        for n in (2, 3):
            word = server.json("POST", "/detokenize", {"tokens": free[at:at + n]})["content"]
            bad = forms(server, word)
            if free[at:at + n] not in bad:
                continue
            n_tried += 1
            (ids,) = ids_of(server, COMPLETIONS, {**asked, "bad_words": [word]})
            # where one of the forms would first have been complete
            first = min(i + n - 1 for i in range(len(free)) if free[i:i + n] in bad)
            assert ids[:first] == free[:first] and ids[first] != free[first]
            assert not any(has(ids, b) for b in bad)
    assert n_tried > 5


def test_bad_words_and_what_else_is_ruled_out(server):
    asked = body(COMPLETIONS, allowed_token_ids=tokens_of(server, "a"))
    assert len(asked["allowed_token_ids"]) == 1
    param, message = error_of(server, COMPLETIONS, {**asked, "bad_words": ["b", "a"]})
    assert param == "bad_words" and "leave no token" in message
    choice = server.json("POST", COMPLETIONS, body(COMPLETIONS, regex="cat|dog", bad_words=["c", "ca", "cat"],
                                                   ignore_eos=False))["choices"][0]
    assert choice["text"] == "dog"


def test_most_bad_words(server):
    """As many as there may be, each of several tokens, in many answers at once."""
    words = [f"{a}{b}{c}" for a in "qxzvjkwy" for b in "qxzvjkwy" for c in "qxzvjkwyabcdefgh"]
    assert len(words) == 1024
    asked = body(COMPLETIONS, n=8, seed=1, temperature=2, bad_words=words)
    for choice in server.json("POST", COMPLETIONS, asked)["choices"]:
        assert len(choice["tokens"]) == 16
    assert server.metric("weir_step_allocations_total") == 0


def test_budget_without_its_mark(start_server, tmp_path):
    """Reasoning whose end is ruled out has no budget: no half of its mark is put."""
    template = tmp_path / "thinks.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}<think>\n{# </think> #}")
    server = start_server("--chat-template-file", template)
    asked = {**body(CHAT), "temperature": 0, "max_tokens": 24}
    budget = {"thinking_budget_tokens": 4}
    ids = ids_of(server, CHAT, {**asked, **budget})
    assert ids != ids_of(server, CHAT, asked)
    mark = server.json("POST", "/tokenize", {"content": "</think>"})["tokens"]
    assert len(mark) > 1
    for ban in ("</think>", "think"):
        ruled = {**asked, "bad_words": [ban]}
        for n in (0, 4):
            limited = {**ruled, "thinking_budget_tokens": n}
            assert ids_of(server, CHAT, limited) == ids_of(server, CHAT, ruled), (ban, n)
    ruled = {**asked, "bad_words": ["xyzzy"]} # which leaves it
    assert ids_of(server, CHAT, {**ruled, **budget}) == ids
