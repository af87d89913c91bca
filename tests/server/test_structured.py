"""Structured output through the real server and the built-in model: every answer that ends by itself
parses and satisfies what was asked for, under every way of sampling; wishes that cannot be granted are
a 400 that says where."""

import json
import os
import re
import socket
import threading
import time

import pytest

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

PERSON = {"type": "object",
          "properties": {"name": {"type": "string", "maxLength": 12},
                         "age": {"type": "integer", "minimum": 0, "maximum": 150},
                         "kind": {"enum": ["cat", "dog", None]},
                         "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
          "required": ["name", "age", "kind"], "additionalProperties": False}


def is_person(text):
    v = json.loads(text)
    assert list(v) in (["name", "age", "kind"], ["name", "age", "kind", "tags"]), v
    assert isinstance(v["name"], str) and len(v["name"]) <= 12, v
    assert type(v["age"]) is int and 0 <= v["age"] <= 150, v
    assert v["kind"] in ("cat", "dog", None), v
    assert len(v.get("tags", [])) <= 3 and all(type(t) is bool for t in v.get("tags", [])), v


def ask(server, **fields):
    """All choices of a completion, as (text, finish_reason)."""
    body = {"prompt": "Once", "max_tokens": 300, **fields}
    return [(c["text"], c["finish_reason"])
            for c in server.json("POST", COMPLETIONS, body)["choices"]]


def chat(server, **fields):
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 300, **fields}
    return [(c["message"]["content"], c["finish_reason"])
            for c in server.json("POST", CHAT, body)["choices"]]


SAMPLINGS = [{"temperature": 0}, {"temperature": 1}, {"temperature": 2},
             {"temperature": 1.5, "top_k": 3}, {"temperature": 1, "top_p": 0.3},
             {"min_p": 0.5, "frequency_penalty": 2}, {"temperature": 2, "repetition_penalty": 5},
             {"logit_bias": {"65": 100, "2": -100}}]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: ",".join(s))
def test_schema(server, sampling):
    ended = 0
    for text, reason in ask(server, json_schema=PERSON, n=8, seed=1, **sampling):
        assert reason in ("stop", "length")
        if reason == "stop":
            is_person(text)
            ended += 1
    assert ended > 0 # a bounded schema leaves little to go on with


@pytest.mark.parametrize("fields", [
    {"response_format": {"type": "json_schema",
                         "json_schema": {"name": "person", "strict": True, "schema": PERSON}}},
    {"response_format": {"type": "json_object", "schema": PERSON}},
    {"json_schema": PERSON}, {"guided_json": PERSON}, {"guided_json": json.dumps(PERSON)},
    {"structured_outputs": {"json": PERSON}}])
def test_ways_to_give_a_schema(server, fields):
    first = None
    for way in (ask, chat):
        for text, reason in way(server, seed=3, temperature=0.7, **fields):
            if reason == "stop":
                is_person(text)
    first = ask(server, seed=3, temperature=0.7, json_schema=PERSON)
    assert ask(server, seed=3, temperature=0.7, **fields) == first


@pytest.mark.parametrize("fields", [{"response_format": {"type": "json_object"}},
                                    {"response_format": {"type": "json_object", "schema": None}},
                                    {"structured_outputs": {"json_object": True}}])
def test_json_object(server, fields):
    for text, reason in ask(server, n=8, seed=5, **fields):
        assert text.startswith("{")
        if reason == "stop":
            assert isinstance(json.loads(text), dict)
        else:
            assert reason == "length"


@pytest.mark.parametrize("field", ["choice", "guided_choice"])
def test_choice(server, field):
    words = ["yes", "no", "yesterday", "\u00e9t\u00e9", "a b\n"]
    for way in (ask, chat):
        for text, reason in way(server, n=8, temperature=2, seed=7, **{field: words}):
            assert text in words and reason == "stop"
    assert ask(server, structured_outputs={"choice": ["only"]}) == [("only", "stop")]


@pytest.mark.parametrize("field", ["regex", "guided_regex"])
def test_regex(server, field):
    pattern = r"[a-f]{3}-(\d{2}|x+)\u00e9?"
    for text, reason in ask(server, n=8, seed=9, **{field: pattern}):
        assert reason != "stop" or re.fullmatch(pattern, text), text


@pytest.mark.parametrize("field", ["grammar", "guided_grammar"])
def test_grammar(server, field):
    gbnf = 'root ::= "(" root ")" | [0-9]{1,3} # nested\n'
    for text, reason in ask(server, n=8, seed=11, temperature=1.5, **{field: gbnf}):
        if reason == "stop":
            depth = len(text) - len(text.lstrip("("))
            assert re.fullmatch(r"\(" * depth + r"\d{1,3}" + r"\)" * depth, text), text


@pytest.mark.parametrize("limit", [90, 100, 120, 150])
def test_limit_is_an_end(server, limit):
    """Where the limit has room for any answer at all, each comes to its end."""
    for text, reason in ask(server, json_schema=PERSON, n=8, seed=limit, temperature=2,
                            max_tokens=limit):
        assert reason == "stop", text
        is_person(text)
    for text, reason in ask(server, response_format={"type": "json_object"}, n=8, seed=limit,
                            temperature=2, max_tokens=limit // 6):
        assert reason == "stop" and isinstance(json.loads(text), dict), text


def test_length_says_length(server):
    for text, reason in ask(server, regex="a{50}", max_tokens=3):
        assert reason == "length" and set(text) == {"a"} and len(text) < 50
    # the last token that fits may also be the last of the text
    assert ask(server, regex="a", max_tokens=1) == [("a", "stop")]


def test_ignore_eos(server):
    """The model's end is not wanted; the grammar's end is one."""
    for text, reason in ask(server, regex="(ab){1,3}", ignore_eos=True, n=8, seed=1):
        assert (text, reason) == ("ababab", "stop")


def test_stop_and_logprobs(server):
    """Stop strings still cut; log-probabilities are the model's own."""
    assert ask(server, regex="aaxbb", stop="x") == [("aa", "stop")]
    body = {"prompt": "Once", "max_tokens": 4, "temperature": 0, "logprobs": 3}
    free = server.json("POST", COMPLETIONS, body)["choices"][0]["logprobs"]
    bound = server.json("POST", COMPLETIONS, {**body, "regex": "[0-9]+"})["choices"][0]
    assert bound["text"].isdigit()
    top = bound["logprobs"]["top_logprobs"][0]
    assert {k: v for k, v in top.items() if k in free["top_logprobs"][0]} == \
        free["top_logprobs"][0]


def test_streams(server):
    body = {"prompt": "Once", "max_tokens": 300, "json_schema": PERSON, "seed": 21,
            "temperature": 0.8}
    whole = server.json("POST", COMPLETIONS, body)["choices"][0]
    status, _, data = server.request("POST", COMPLETIONS, {**body, "stream": True})
    events = [json.loads(line[6:]) for line in data.decode().splitlines()
              if line.startswith("data: {")]
    assert status == 200
    assert "".join(e["choices"][0]["text"] for e in events) == whole["text"]
    assert events[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]


def test_alone_and_in_company(server):
    """The same request has the same answer, whatever else uses its grammar or another."""
    wishes = [{"json_schema": PERSON}, {"regex": "[a-z ]{5,40}[.!]"},
              {"response_format": {"type": "json_object"}}, {"grammar": 'root ::= ("ab" | "a")* "c"'},
              {}]
    bodies = [{"seed": seed, "temperature": 1.2, "max_tokens": 60, **wish}
              for seed in range(6) for wish in wishes]
    alone = [ask(server, **body) for body in bodies]
    together = [None] * len(bodies)

    def run(i):
        together[i] = ask(server, **bodies[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(bodies))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert together == alone


def test_preempted(server, start_server):
    """Answers that are put back into the queue, again and again, go on where their grammar was. All
    prompts of a request come at once, and what they come to is several times the memory."""
    prompts = ["Once there was a " * (5 + i % 7) for i in range(12)]
    bodies = [{"prompt": prompts, "seed": 3, "temperature": 1.2, "max_tokens": 120, **wish}
              for wish in ({"regex": "[a-z ]{300}!"}, {"json_schema": PERSON})]
    alone = [ask(server, **body) for body in bodies]
    size = server.json("GET", "/v1/kv")["block_bytes"]
    small = start_server("--kv-memory", str(24 * size), "--overcommit", "1", "--context", "384")
    assert [ask(small, **body) for body in bodies] == alone
    assert small.metric("weir_preemptions_total") > 0


BAD = [({"json_schema": {"properties": {"a": {"type": "strin"}}}}, "/properties/a/type"),
       ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {"format": "date"}}}}}, "/not"),
       ({"response_format": {"type": "json_schema"}}, "schema"),
       ({"response_format": {}}, "'response_format' must have a 'type'"),
       ({"response_format": {"type": "jsn"}}, "not 'jsn'"),
       ({"grammar": 'root ::= "a"\nx ::= ('}, "line 2, column 7"),
       ({"grammar": 'root ::= root "a" | "b"'}, "left recursion"),
       ({"regex": "a(?=b)"}, "offset 1"),
       ({"regex": "a", "choice": ["b"]}, "cannot be combined"),
       ({"regex": "a", "response_format": {"type": "json_object"}}, "cannot be combined"),
       ({"structured_outputs": {"json": {}, "regex": "a"}}, "cannot be combined"),
       ({"regex": "a{2000000}"}, "too long"), ({"guided_choice": []}, "'guided_choice' is empty"),
       ({"json_schema": {"type": "integer", "minimum": 2 ** 64 - 1}}, '"/minimum": is beyond 64 bits'),
       ({"json_schema": {"type": "object", "properties": {"a": {"const": 2 ** 64}}}}, "/properties/a"),
       ({"grammar": "root ::= " + "(" * 60000}, "nested too deeply")]


@pytest.mark.parametrize("bounds", [
    {"type": "integer", "minimum": -2 ** 63, "maximum": 2 ** 63 - 1}, {"type": "integer", "minimum": 0, "maximum": 2 ** 64 - 1},
    {"type": "number", "minimum": -1.7976931348623157e308, "maximum": 1.7976931348623157e308},
    {"type": "number", "minimum": -3.4028234663852886e38, "maximum": 3.4028234663852886e38}], ids=str)
def test_bounds_of_whole_types(server, bounds):
    for schema in (bounds, json.dumps(bounds)):
        for text, reason in ask(server, n=4, temperature=1, seed=5, guided_json=schema, max_tokens=60):
            assert reason == "stop" and bounds["minimum"] <= json.loads(text) <= bounds["maximum"], text


@pytest.mark.parametrize("fields,says", BAD, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_wishes(server, fields, says):
    for route, good in ((COMPLETIONS, {"prompt": "a"}),
                        (CHAT, {"messages": [{"role": "user", "content": "a"}]})):
        status, _, data = server.request("POST", route, {**good, **fields})
        error = json.loads(data)["error"]
        assert status == 400 and says in error["message"], error
        assert error["param"] in set(fields) | {"json", "regex"}, error


def test_steps_allocate_nothing(server):
    ask(server, n=4, json_schema=PERSON, temperature=1)
    metrics = server.request("GET", "/metrics")[2].decode()
    assert re.search(r"^weir_step_allocations_total 0$", metrics, re.M)
    assert re.search(r"^weir_grammar_mask_misses_total [1-9]", metrics, re.M)
    assert re.search(r"^weir_grammar_mask_evictions_total 0", metrics, re.M)


def costly(i):
    """A schema that is refused after about as much work as one may cost; no two are the same."""
    return {"type": "object", "properties": {
        f"p{k}": {"type": "string", "pattern": f"^(a|b)*a(a|b){{{9 + i % 3}}}c{i}x{k}$", "maxLength": 200 + i}
        for k in range(40)}}


ATTEMPTS = 6  # at what has to be in time, on a machine that others keep busy


def test_costly_schemas_keep_nobody(server):
    """Six at once, three times as many as there are workers: requests without a schema, and with a
    cheap one that nobody has sent yet, are answered before the last of them."""

    def send(codes, i):
        body = {"max_tokens": 1, "json_schema": costly(i)}
        if i % 2:  # looked at, although the answer will be a call
            body |= {"messages": [{"role": "user", "content": "a"}], "tool_choice": "required",
                     "tools": [{"type": "function", "function": {"name": "f"}}]}
        else:
            body["prompt"] = "a"
        codes.append(server.request("POST", CHAT if i % 2 else COMPLETIONS, body, timeout=600)[0])

    for attempt in range(ATTEMPTS):
        codes = []
        threads = [threading.Thread(target=send, args=(codes, 6 * attempt + i)) for i in range(6)]
        for t in threads:
            t.start()
        while server.metric("weir_grammars_waiting") < 4 and len(codes) < 2:
            time.sleep(0.001)
        server.json("POST", COMPLETIONS, {"prompt": "a", "max_tokens": 1})
        server.json("POST", COMPLETIONS, {"prompt": "a", "max_tokens": 9, "regex": f"[a-d]{{3}}new{attempt}"})
        n_before = len(codes)
        for t in threads:
            t.join()
        assert codes == [400] * 6 and server.metric("weir_grammars_waiting") == 0
        if n_before < 6:
            break
    assert n_before < 6


def test_costly_schemas_in_turns(start_server, tmp_path):
    """One key's costly schema comes before most of another key's five."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": n, "key": "sk-0123456789-" + n} for n in "ab"]}))
    server = start_server("--api-keys", keys)

    def send(order, name, i):
        body = {"prompt": "a", "max_tokens": 1, "json_schema": costly(i)}
        server.request("POST", COMPLETIONS, body, headers={"X-Api-Key": "sk-0123456789-" + name}, timeout=600)
        order.append(name)

    metrics = {"X-Api-Key": "sk-0123456789-b"}
    for attempt in range(ATTEMPTS):
        order = []
        threads = [threading.Thread(target=send, args=(order, "a", 5 * attempt + i)) for i in range(5)]
        for t in threads:
            t.start()
        while not order and b"weir_grammars_waiting 4" not in server.request("GET", "/metrics", headers=metrics)[2]:
            time.sleep(0.001)
        threads.append(threading.Thread(target=send, args=(order, "b", 100 + attempt)))
        threads[-1].start()
        for t in threads:
            t.join()
        if "b" in order[:4]:
            break
    assert "b" in order[:4], order


def cpu_seconds(server):
    with open(f"/proc/{server.process.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_who_has_left_is_not_compiled(start_server):
    """Forty costly schemas whose clients leave take the work of the one under way, not of all."""
    server = start_server()
    host, port = server.url.removeprefix("http://").split(":")
    before = cpu_seconds(server)
    server.json("POST", COMPLETIONS, {"prompt": "a", "json_schema": costly(0)}, status=400, timeout=600)
    one = cpu_seconds(server) - before
    sockets = []
    for i in range(40):
        body = json.dumps({"prompt": "a", "max_tokens": 1, "json_schema": costly(20 + i)}).encode()
        sockets.append(socket.create_connection((host, int(port))))
        sockets[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    while server.metric("weir_grammars_waiting") < 16:
        time.sleep(0.001)
    before = cpu_seconds(server)
    for s in sockets:
        s.close()
    while server.metric("weir_grammars_waiting") > 0:
        time.sleep(0.02)
    assert cpu_seconds(server) - before < 0.25 + 4 * one
