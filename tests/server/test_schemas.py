"""Answers under schemas as strangers write them (schemas.py): each validates, formats included, by a
validator that is not ours, or the schema is refused with a 400 that names the place."""

import json

import pytest

from conftest import few
from schemas import SCHEMAS
from schemas_tools import TOOLS

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
unicode = pytest.importorskip("jsonschema_rs", reason="jsonschema_rs is not installed")

ALL = {**SCHEMAS, **TOOLS}
FREE = "is supported where the elements have an enum or few values"
REFUSED = {
    "pydantic set of int": ("/uniqueItems", FREE),
    "pydantic set of str": ("/properties/tags/uniqueItems", FREE),
    "unique integers": ("/uniqueItems", FREE),
    "unique strings": ("/uniqueItems", FREE),
    "unique strings, unbounded": ("/uniqueItems", FREE),
    "unique objects": ("/uniqueItems", FREE),
    "unique anything": ("/uniqueItems", FREE),
    "unique beside prefixItems": ("/uniqueItems", FREE),
    "unique dates": ("/uniqueItems", FREE),
    "pattern with look-behind": ("/pattern", "offset 0: look-around"),
    "tags without doubles": ("/uniqueItems", FREE),
    "pattern with back reference": ("/pattern", "offset 6: references back"),
    "contains twice": ("/contains", "cannot be combined with another"),
    "object, min and max": ("/minProperties", "is more than the members that are described"),
    "oneOf of numbers": ("/oneOf/0/anyOf/1/not", "is too large an automaton"),
    "allOf of formats": ("/format", "cannot be combined with another"),
    "not a format": ("/not", "cannot be turned round"),
    "not an object": ("/not", "given whole"),
    "ref to an id": ("/$ref", "only references within the schema"),
    "remote ref": ("/$ref", "only references within the schema"),
}
SAMPLINGS = [{"temperature": 0, "n": 1}, {"temperature": 1, "n": few(6, 2)}, {"temperature": 2, "n": few(6, 2)}]


def with_null(schema):
    """OpenAPI's nullable in words that validators know."""
    if isinstance(schema, list):
        return [with_null(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: with_null(v) for k, v in schema.items()}
    if out.pop("nullable", None) is True and "type" in out:
        out["type"] = [out["type"], "null"]
    return out


def validator_of(schema):
    if "\\\\p{" in json.dumps(schema, ensure_ascii=False).replace("P{", "p{"):
        return unicode.validator_for(schema) # Python's own expressions know no categories
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def pairs(n):
    return {"type": "object", "dependentRequired": {f"a{i}": [f"b{i}"] for i in range(n)}}


def lists(keyword, n):
    """n lists of two options beside one another."""
    one = {"if": lambda i: {"if": {"properties": {f"a{i}": {"const": 1}}}, "then": {"required": [f"b{i}"]},
                            "else": {"required": [f"c{i}"]}},
           "oneOf": lambda i: {"oneOf": [{"required": [f"a{i}"], "properties": {f"a{i}": {"const": k}}} for k in (1, 2)]}}
    members = {f"{x}{i}": {"type": "integer"} for x in "abc" for i in range(n)}
    return {"type": "object", "properties": members, "allOf": [one[keyword](i) for i in range(n)]}


def chain(n):
    links = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{n}": {"type": "integer"}}}


def unique(n, **more):
    return {"type": "array", "uniqueItems": True, "items": {"enum": list(range(n))}, **more}


OPTIONS = "512 options combined with 2 others (by allOf, $ref, oneOf, if or dependentRequired) are more than 1000"


@pytest.mark.parametrize("fits, over, words", [
    (unique(62), unique(63), "63 values for up to 63 elements are too many: (values + 1) times (maxItems + 1) may be 4000"),
    (unique(199, maxItems=19), unique(200, maxItems=19), "200 values for up to 19 elements"),
    (pairs(9), pairs(10), OPTIONS), (lists("oneOf", 5), lists("oneOf", 11), OPTIONS), (lists("oneOf", 5), lists("oneOf", 6), "combines too many of its parts"), (lists("if", 8), lists("if", 10), OPTIONS),
    (chain(30), chain(31), "more than 60 of allOf and $ref"),
], ids=["uniqueItems", "uniqueItems, maxItems", "dependentRequired", "oneOf", "oneOf, parts", "if", "allOf"])
def test_limits(server, fits, over, words):
    body = {"prompt": "Once", "max_tokens": 1}
    server.json("POST", "/v1/completions", {**body, "json_schema": fits})
    error = server.json("POST", "/v1/completions", {**body, "json_schema": over}, status=400)["error"]
    assert words in error["message"] and error["param"] == "json_schema", error


@pytest.mark.parametrize("name", ALL)
def test_schema(server, name):
    schema = ALL[name]
    body = {"prompt": "Once", "max_tokens": 300, "json_schema": schema, "seed": 1}
    if name in REFUSED:
        error = server.json("POST", "/v1/completions", body, status=400)["error"]
        place, why = REFUSED[name]
        assert f'at "{place}": ' in error["message"] and why in error["message"], error
        assert error["param"] == "json_schema"
        return
    validator = validator_of(with_null(schema))
    ended = 0
    for sampling in SAMPLINGS:
        answer = server.json("POST", "/v1/completions", {**body, **sampling})
        for choice in answer["choices"]:
            if choice["finish_reason"] == "length":
                continue
            assert choice["finish_reason"] == "stop"
            value = json.loads(choice["text"])
            if name != "pattern with named group":  # which Python writes otherwise
                wrong = [e.message for e in validator.iter_errors(value)]
                assert not wrong, (choice["text"], wrong)
            ended += 1
    assert ended > 0, "no answer came to its end"


@pytest.mark.parametrize("form", ["response_format", "tool", "tool, strict"])
def test_ways(server, form):
    """The same schemas, some of each kind, as clients send them."""
    for name in ("strict union", "strict recursion by defs", "pydantic discriminator",
                 "if chains", "zod intersection, unevaluated", "invoice", "search query"):
        schema = {**SCHEMAS[name], "type": "object"}
        body = {"messages": [{"role": "user", "content": "Go"}], "max_tokens": 400, "seed": 3}
        if form == "response_format":
            body["response_format"] = {"type": "json_schema", "json_schema": {
                "name": "x", "strict": True, "schema": schema}}
        else:
            body["tools"] = [{"type": "function", "function": {
                "name": "f", "parameters": schema, **({"strict": True} if "strict" in form else {})}}]
            body["tool_choice"] = "required"
        choice = server.json("POST", "/v1/chat/completions", body)["choices"][0]
        if choice["finish_reason"] == "length":
            continue
        message = choice["message"]
        text = message["content"] if form == "response_format" else \
            message["tool_calls"][0]["function"]["arguments"]
        validator_of(schema).validate(json.loads(text))
