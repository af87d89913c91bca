"""Every field of every route that takes a body, with values it may not have: always a 400 in the shape
of an error that names the field, never a 500, never a dead server; and bodies that no field explains."""

import json
import time

import pytest

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GOOD = {CHAT: {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1},
        COMPLETIONS: {"prompt": "hi", "max_tokens": 1}}
BOTH = (CHAT, COMPLETIONS)

NOT_NUMBERS = ["1", "", [], [1], {}, {"a": 1}, True, False]
NOT_INTEGERS = [*NOT_NUMBERS, 1.5, -0.5, 1e300, -1e300]
NOT_BOOLEANS = [0, 1, 1.0, "true", "", [], {}]
NOT_STRINGS = [0, 1.5, True, [], {}]
HUGE = [2**31, 2**40, 2**63 - 1, -2**63]

# field -> (routes, values that are wrong)
FIELDS = {
    "model": (BOTH, NOT_STRINGS),
    "n": (BOTH, [*NOT_INTEGERS, 0, -1, 129, *HUGE]),
    "best_of": (BOTH, [*NOT_INTEGERS, 0, -1, 2, 129, *HUGE]),
    "max_tokens": (BOTH, [*NOT_INTEGERS, 0, -2, -(2**31), *HUGE]),
    "max_completion_tokens": (BOTH, [*NOT_INTEGERS, 0, -2, *HUGE]),
    "temperature": (BOTH, [*NOT_NUMBERS, -0.1, 2.1, 1e300, -1e300, *HUGE]),
    "top_p": (BOTH, [*NOT_NUMBERS, -0.1, 1.1, 1e300, *HUGE]),
    "min_p": (BOTH, [*NOT_NUMBERS, -0.1, 1.1, 1e300, *HUGE]),
    "top_k": (BOTH, [*NOT_INTEGERS, -2, *HUGE]),
    "repeat_penalty": (BOTH, [*NOT_NUMBERS, 0, -1, 1e300]),
    "repetition_penalty": (BOTH, [*NOT_NUMBERS, 0, -1, 1e300]),
    "presence_penalty": (BOTH, [*NOT_NUMBERS, 2.1, -2.1, 1e300]),
    "frequency_penalty": (BOTH, [*NOT_NUMBERS, 2.1, -2.1, 1e300]),
    "seed": (BOTH, [*NOT_INTEGERS, 2**64]),
    "logit_bias": (BOTH, [1, "1", [], [1], True, {"": 1}, {"x": 1}, {"-1": 1}, {"01": 1},
                          {"1.0": 1}, {"999999": 1}, {"4294967296": 1}, {"18446744073709551617": 1},
                          {"1": None}, {"1": "1"}, {"1": 101}, {"1": -1e300}, {"1": [1]}]),
    "stop": (BOTH, [1, True, {}, {"a": 1}, "", [""], ["a", ""], [1], [None], [["a"]], ["a"] * 17,
                    ["a"] * 5000]),
    "allowed_token_ids": (BOTH, [1, "1", True, {}, [-1], [999999], [2**40], ["1"], [1.5], [None], [[1]],
                                 [1] * 300000]),
    "bad_words": (BOTH, [1, "a", True, {}, [""], ["a", ""], [1], [None], [["a"]], ["a"] * 1025, ["a" * 65537],
                         ["a" * 40000] * 2]),
    "stop_token_ids": (BOTH, [1, "1", True, {}, [-1], [999999], [2**40], ["1"], [1.5], [None], [[1]],
                              [1] * 257, [1] * 5000]),
    "stream": (BOTH, NOT_BOOLEANS),
    "stream_options": (BOTH, [1, "x", True, [], [1]]),
    "ignore_eos": (BOTH, NOT_BOOLEANS),
    "return_tokens": (BOTH, NOT_BOOLEANS),
    "skip_special_tokens": (BOTH, NOT_BOOLEANS),
    "return_token_ids": (BOTH, NOT_BOOLEANS),
    "return_tokens_as_token_ids": (BOTH, NOT_BOOLEANS),
    "prompt_logprobs": (BOTH, [*NOT_INTEGERS, -1, 21, *HUGE]),
    "cache_prompt": (BOTH, NOT_BOOLEANS),
    "cache_salt": (BOTH, [*NOT_STRINGS, "x" * 1025, "x" * 100000]),
    "priority": (BOTH, [*NOT_INTEGERS, 101, -101, *HUGE]),
    "response_format": (BOTH, [1, "", "text", [], {}, {"type": 1}, {"type": "json_object\x1b[2J"}]),
    "grammar": (BOTH, [1, "x", ["x"], {"a": 1}, True, [], {}]),
    "guided_grammar": (BOTH, [1, "root ::= root", ["x"], False]),
    "regex": (BOTH, [1, "(", ["x"], {}, "[a", "a{5,1}"]),
    "guided_regex": (BOTH, [1, "(?=a)", [], True]),
    "choice": (BOTH, [1, "a", [], {}, [1], [""], ["a", None], True]),
    "guided_choice": (BOTH, [[], [[]], {"a": 1}]),
    "json_schema": (BOTH, [1, [], "{", "1", {"type": "x"}, {"properties": 1}, False]),
    "guided_json": (BOTH, [1, {"items": {"$ref": "#/x"}}, "[]"]),
    "structured_outputs": (BOTH, [1, "x", [], {"whitespace_pattern": " "}, {"structural_tag": "x"}]),
    "mirostat": (BOTH, [1, "0", True, [], {}]),
    "n_indent": (BOTH, [*NOT_INTEGERS, -1, *HUGE]),
    "t_max_predict_ms": (BOTH, [*NOT_INTEGERS, -2, *HUGE]),
    "post_sampling_probs": (BOTH, [True, 1, "x"]),
    "response_fields": (BOTH, [["content"], "x", 1]),
    "n_cmpl": (BOTH, [2, "1", True]),
    "min_keep": (BOTH, [1, "0"]),
    "guided_whitespace_pattern": (BOTH, [" ", 1]),
    "spaces_between_special_tokens": (BOTH, [False, 1]),
    "truncate_prompt_tokens": (BOTH, [1, "x", [], {}, True]),
    "prompt": ((COMPLETIONS,), [1, 1.5, True, {}, {"a": 1}, [], [[]], "", [""], [1, "a"], ["a", 1],
                                [1, 2.5], [-1], [999999], [2**40], [[[1]]], [None],
                                [True], ["a"] * 129, [[1]] * 200, None]),
    "suffix": ((COMPLETIONS,), [1, "x", ["x"], {"a": 1}, True]),
    "echo": ((COMPLETIONS,), NOT_BOOLEANS),
    "logprobs": ((COMPLETIONS,), [*NOT_INTEGERS, -1, 1000, *HUGE]),
    "messages": ((CHAT,), [1, "hi", True, {}, {"a": 1}, [], None, [1], ["hi"], [None], [[]], [{}],
                           [{"role": 1, "content": "a"}], [{"role": "user"}],
                           [{"role": "user", "content": 1}], [{"role": "user", "content": {}}],
                           [{"role": "user", "content": [1]}], [{"role": "user", "content": [{}]}],
                           [{"role": "user", "content": [{"type": 1, "text": "a"}]}],
                           [{"role": "user", "content": [{"type": "text"}]}],
                           [{"role": "user", "content": [{"type": "text", "text": 1}]}]]),
    "top_logprobs": ((CHAT,), [*NOT_INTEGERS, -1, 5, 1000, *HUGE]),
    "modalities": ((CHAT,), [1, "text", {}, True, ["audio"], [1], [None], ["text", "image"]]),
}
CASES = [(route, field) for field, (routes, _) in FIELDS.items() for route in routes]


def check(server, route, body, field):
    status, _, data = server.request("POST", route, body)
    assert status == 400, (status, data[:400], str(body)[:400])
    error = json.loads(data)["error"]
    assert error["type"] == "invalid_request_error" and error["message"].isprintable(), error
    param = error["param"]
    if field is None:
        assert param is None, error
    else: # a part of the field, or the option of stream_options
        assert param == field or param.startswith((field + "[", field + ".")) or param.endswith("." + field), error


@pytest.mark.parametrize("route,field", CASES)
def test_wrong_values(server, route, field):
    for value in FIELDS[field][1]:
        check(server, route, {**GOOD[route], field: value}, field)


@pytest.mark.parametrize("route", BOTH)
def test_wrong_include_usage(server, route):
    for value in NOT_BOOLEANS:
        check(server, route, {**GOOD[route], "stream_options": {"include_usage": value}},
              "include_usage")


@pytest.mark.parametrize("route", BOTH)
def test_null_is_absent(server, route):
    fields = [f for f, (routes, _) in FIELDS.items() if route in routes and f not in GOOD[route]]
    server.json("POST", route, {**GOOD[route], **dict.fromkeys(fields)})


BODIES = {
    "nan": '"temperature": NaN', "infinity": '"temperature": Infinity', "1e999": '"temperature": 1e999',
    "many_digits": '"seed": ' + "9" * 10000,
    "lone_high_surrogate": '"user": "\\ud800"', "lone_low_surrogate": '"user": "\\udc00"',
    "reversed_pair": '"user": "\\udc00\\ud800"', "nul": '"user": "a\\u0000b"', "nul_key": '"\\u0000": 1',
    "control_character": '"user": "a\nb"', "bad_escape": '"user": "\\x41"', "unquoted": "user: 1",
    "trailing_comma": '"user": 1,', "comment": '"user": 1 /* no */', "hex": '"seed": 0x10',
    "plus": '"seed": +1', "leading_zero": '"seed": 01', "deep_array": '"user": ' + "[" * 100000,
    "deep_closed": '"user": ' + "[" * 5000 + "]" * 5000,
    "deep_object": '"user": ' + '{"a":' * 100000,
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("route", BOTH)
def test_bodies_that_are_no_json(server, route, name):
    good = json.dumps(GOOD[route])[:-1]
    check(server, route, (good + ", " + BODIES[name] + "}").encode(), None)
    check(server, route, (good + ', "user": 1} x').encode(), None)
    for raw in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x00"):
        check(server, route, (good + ', "user": "').encode() + raw + b'"}', None)


@pytest.mark.parametrize("route", BOTH)
def test_a_byte_order_mark_is_passed_over(server, route):
    mark, body = b"\xef\xbb\xbf", json.dumps(GOOD[route]).encode()
    server.json("POST", route, mark + body)
    for bad in (mark[:2] + body, mark, mark[:2]):
        check(server, route, bad, None)


@pytest.mark.parametrize("route", BOTH)
def test_a_field_twice_is_the_last(server, route):
    body = json.dumps(GOOD[route])[:-1] + ', "max_tokens": 0, "max_tokens": 1}'
    server.json("POST", route, body.encode())
    check(server, route, body.replace("0, ", "1, ").replace("1}", "0}").encode(), "max_tokens")


def test_ten_megabytes(server):
    """A long text is refused for its tokens, in time that grows with it and no faster."""
    text = "Once there was a " * (10 * 2**20 // 17)
    for route, body in ((COMPLETIONS, {"prompt": text}),
                        (CHAT, {"messages": [{"role": "user", "content": text}]})):
        start = time.monotonic()
        status, _, data = server.request("POST", route, body, timeout=120)
        took = time.monotonic() - start
        error = json.loads(data)["error"]
        assert status == 400 and error["code"] == "context_length_exceeded", (took, error)
    check(server, COMPLETIONS, {"prompt": "a", "model": ["x" * 10**7]}, "model")
    check(server, COMPLETIONS, {"prompt": [1] * 1000000}, "prompt")
    check(server, CHAT, {"messages": [{"role": "user", "content": "a"}] * 100000}, "messages")
    bias = {str(i): 1 for i in range(100000)}
    check(server, COMPLETIONS, {"prompt": "a", "logit_bias": bias}, "logit_bias")
    server.json("POST", COMPLETIONS, {"prompt": "a", "max_tokens": 1,
                                      **{f"unknown{i}": [] for i in range(100000)}})


TURN = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
BAD = {"type": "json_schema", "schema": {"type": "x"}}
BUDGET = {"type": "enabled", "budget_tokens": 0}


@pytest.mark.parametrize("path, body, field", [
    ("/completion", {"prompt": "a", "max_tokens": -5}, "max_tokens"),
    ("/completion", {"prompt": "a", "n_predict": -5}, "n_predict"),
    ("/completion", {"prompt": "a", "max_tokens": -5, "n_predict": 10}, "max_tokens"),
    ("/completion", {"prompt": "a", "max_tokens": -5, "n_predict": None}, "max_tokens"),
    ("/v1/messages", {**TURN, "stop_sequences": [1]}, "stop_sequences[0]"),
    ("/v1/messages", {**TURN, "stop_sequences": ["a", ""]}, "stop_sequences[1]"),
    ("/v1/messages", {**TURN, "thinking": BUDGET}, "thinking.budget_tokens"),
    ("/v1/messages", {**TURN, "output_format": BAD}, "output_format"),
    ("/v1/messages", {**TURN, "output_config": {"format": BAD}}, "output_config.format"),
    ("/v1/messages", {**TURN, "output_format": None, "output_config": {"format": BAD}}, "output_config.format"),
    ("/v1/messages", {**TURN, "response_format": {"type": "json_object", "schema": {"type": "x"}}, "output_config": {"effort": "low"}}, "response_format"),
    ("/v1/chat/completions", {**TURN, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ("/v1/responses", {"input": "a", "max_output_tokens": 0}, "max_output_tokens"),
    ("/v1/responses", {"input": "a", "messages": [{"role": "user", "content": "a"}]}, "messages"),
    ("/v1/responses", {"input": "a", "text": {"format": {"type": "json_schema"}}}, "text.format"),
])
def test_errors_name_the_field_that_was_sent(server, path, body, field):
    error = server.json("POST", path, body, status=400)["error"]
    assert f"'{field}'" in error["message"] and error.get("param", field) == field, error
    assert "'json_schema'" not in error["message"]


def test_still_well(server):
    """After all of it: no error of the server's own was counted, and the memory adds up."""
    assert server.process.poll() is None
    text = server.request("GET", "/metrics")[2].decode()
    assert 'status="500"' not in text
    server.json("GET", "/v1/kv?check=true")
