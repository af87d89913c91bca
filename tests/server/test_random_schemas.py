"""Schemas by chance: each answer validates by a validator that is not ours, or the schema is refused
with a 400 that names the place. WEIR_SEED repeats a run, WEIR_SCHEMAS says how many there are."""

import json
import os
import random
import re
import time

import pytest

from conftest import few

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

NAMES = ["a", "b", "id", "name", "x-1", "\u00e9"]
PATTERNS = ["^[a-c]{1,3}$", "^x", "b$", "[0-9]{2}", "^(ab?){2,4}$", "^\\S+$"]
FORMATS = ["date", "ipv4", "uuid", "email", "date-time"]


def some(rng, **fields):
    """Each of the fields, or not."""
    return {k: v for k, v in fields.items() if rng.random() < 0.4}


def span(rng, lo, hi, low, high):
    a, b = sorted(rng.randint(lo, hi) for _ in range(2))
    return some(rng, **{low: a, high: b})


def number(rng):
    kind = rng.choice(["integer", "number"])
    bounds = span(rng, -300, 300, rng.choice(["minimum", "exclusiveMinimum"]),
                  rng.choice(["maximum", "exclusiveMaximum"]))
    return {"type": kind, **bounds, **(some(rng, multipleOf=rng.randint(1, 12)) if kind == "integer"
                                       else {})}


def string(rng):
    more = rng.choice([{}, {"pattern": rng.choice(PATTERNS)}, {"format": rng.choice(FORMATS)}])
    return {"type": "string", **({} if "format" in more else span(rng, 0, 12, "minLength", "maxLength")),
            **more}


def listed(rng):
    values = [None, True, 0, 1, -7, 2.5, "", "a", "ab", [], [1], {}, {"a": 1}]
    return rng.choice([{"enum": rng.sample(values, rng.randint(1, 5))}, {"const": rng.choice(values)},
                       {"type": "boolean"}, {"type": ["null", "integer"]}, {}])


def array(rng, depth):
    out = {"type": "array", **span(rng, 0, 4, "minItems", "maxItems"),
           **some(rng, items=schema(rng, depth - 1),
                  prefixItems=[schema(rng, depth - 1) for _ in range(rng.randint(1, 2))])}
    if rng.random() < 0.2:
        out |= {"contains": schema(rng, 0), **span(rng, 0, 3, "minContains", "maxContains")}
    if rng.random() < 0.2:
        out |= {"uniqueItems": True, "items": listed(rng)}
    return out


def an_object(rng, depth):
    names = rng.sample(NAMES, rng.randint(0, 4))
    return {"type": "object", "properties": {name: schema(rng, depth - 1) for name in names},
            "required": [name for name in names if rng.random() < 0.5],
            **some(rng, additionalProperties=rng.choice([True, False, schema(rng, 0)]),
                   patternProperties={rng.choice(PATTERNS): schema(rng, 0)},
                   dependentRequired={"a": ["b"]}),
            **(span(rng, 0, 4, "minProperties", "maxProperties") if rng.random() < 0.3 else {})}


def logic(rng, depth):
    parts = [schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    return rng.choice([{"anyOf": parts}, {"oneOf": parts}, {"allOf": parts[:2]},
                       {**schema(rng, depth - 1), "not": schema(rng, 0)},
                       {"if": schema(rng, 0), "then": parts[0], "else": parts[-1]},
                       {"$ref": "#/$defs/node"}])


def schema(rng, depth):
    kind = rng.random()
    if depth > 0 and kind < 0.55:
        return rng.choice([array, an_object, an_object, logic])(rng, depth)
    return rng.choice([number, string, listed])(rng)


NODE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
        "required": ["v"]}
SAMPLINGS = [{"temperature": 0, "n": 1}, {"temperature": 1.5, "n": 4}]


def test_random_schemas(server):
    seed = int(os.environ.get("WEIR_SEED", time.time_ns() % 2**32))
    print(f"WEIR_SEED={seed}")
    rng = random.Random(seed)
    n, refused, ended = int(os.environ.get("WEIR_SCHEMAS", few(60, 24))), 0, 0
    for i in range(n):
        wanted = {**schema(rng, 3), "$defs": {"node": NODE}}
        shown = f"WEIR_SEED={seed}, {i}: {json.dumps(wanted)}"
        jsonschema.Draft202012Validator.check_schema(wanted)
        validator = jsonschema.Draft202012Validator(
            wanted, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for sampling in SAMPLINGS:
            body = {"prompt": "Once", "max_tokens": 200, "json_schema": wanted, "seed": i, **sampling}
            status, _, answer = server.request("POST", "/v1/completions", body)
            answer = json.loads(answer)
            if status == 400:
                assert re.search(r'at "[^"]*": |nothing|no text', answer["error"]["message"]), \
                    (shown, answer)
                refused += 1
                break
            assert status == 200, (shown, answer)
            for choice in answer["choices"]:
                if choice["finish_reason"] == "length":
                    continue
                assert choice["finish_reason"] == "stop", shown
                wrong = [e.message for e in validator.iter_errors(json.loads(choice["text"]))]
                assert not wrong, (shown, choice["text"], wrong)
                ended += 1
    # about one in six is refused: that so many are has a probability below 1e-12, also of the few
    assert refused < 0.85 * n and ended > n / 2
