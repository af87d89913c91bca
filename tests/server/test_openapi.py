"""docs/openapi.json is true: served as it is, complete both ways, and obeyed by the server."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "openapi.json"
DOC = json.loads(FILE.read_text())
OPERATIONS = [(path, method, op) for path, item in DOC["paths"].items()
              for method, op in item.items()]
IDS = [f"{method} {path}" for path, method, _ in OPERATIONS]


def schemathesis():
    beside = Path(sys.executable).parent / "schemathesis"
    return str(beside) if beside.exists() else shutil.which("schemathesis")


def walk(v):
    yield v
    for x in v.values() if isinstance(v, dict) else v if isinstance(v, list) else []:
        yield from walk(x)


def resolve(v):
    while "$ref" in v:
        at = DOC
        for part in v["$ref"].removeprefix("#/").split("/"):
            at = at[part]
        v = at
    return v


def validator(schema):
    rs = pytest.importorskip("jsonschema_rs", reason="jsonschema_rs comes with schemathesis")
    # references lead into the whole document
    return rs.validator_for({**schema, "components": DOC["components"]})


def test_served_as_it_is(server):
    status, headers, data = server.request("GET", "/openapi.json")
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert data == FILE.read_bytes()


def test_well_formed():
    assert DOC["openapi"].startswith("3.1.")
    for v in walk(DOC):
        if isinstance(v, dict) and "$ref" in v:
            resolve(v)
    ids = [op["operationId"] for _, _, op in OPERATIONS]
    assert len(ids) == len(set(ids))
    tags = {t["name"] for t in DOC["tags"]}
    for path, method, op in OPERATIONS:
        assert set(op["tags"]) <= tags and op["summary"], path
        assert "200" in op["responses"], (path, method)
    used = {v["$ref"] for v in walk(DOC) if isinstance(v, dict) and "$ref" in v}
    for kind in ("schemas", "responses", "headers"):
        for name in DOC["components"][kind]:
            assert f"#/components/{kind}/{name}" in used, f"{name} is used nowhere"


def routes_of_the_source():
    """(path, method) of every row of the table, and of paths with something behind them."""
    source = (ROOT / "src/api/api.c").read_text()
    rows = re.findall(r'\{"(/[^"]*)",\s*ROUTE_\w+,\s*(true|false)', source)
    routes = {(path, "post" if post == "true" else "get") for path, post in rows}
    assert len(routes) > 6
    for prefix in re.findall(r'\w+_path\[\] = "(/[^"]*/)"', source):
        routes.add((prefix + "{id}", "get"))
    return routes


def test_every_route_both_ways():
    assert {(path, method) for path, method, _ in OPERATIONS} == routes_of_the_source()


def test_every_shared_field_of_the_documentation():
    text = (ROOT / "docs/API.md").read_text()
    table = text.split("## Fields of both completion routes")[1].split("Sampling applies")[0]
    names = set()
    for row in re.findall(r"^\| (`[^|]*) \|", table, re.M):
        names |= set(re.findall(r"`(\w+)`", row))
    fields = set(DOC["components"]["schemas"]["SharedFields"]["properties"])
    assert len(names) > 20 and names == fields - {"user"}


@pytest.mark.parametrize("path, method, op", OPERATIONS, ids=IDS)
def test_examples_are_what_the_schemas_say(path, method, op):
    contents = [c for r in op["responses"].values() for c in resolve(r)["content"].values()]
    contents += op.get("requestBody", {}).get("content", {}).values()
    for content in contents:
        if "example" in content:
            validator(content["schema"]).validate(content["example"])


@pytest.mark.parametrize("path, method, op", OPERATIONS, ids=IDS)
def test_the_server_answers_as_described(server, path, method, op):
    body = op.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    assert method == "get" or body
    for p in op.get("parameters", []):
        if p["in"] == "path":
            path = path.replace("{%s}" % p["name"], p["example"])
    status, headers, data = server.request(method.upper(), path, body)
    assert status == 200, data
    kind = headers["Content-Type"].split(";")[0]
    content = op["responses"]["200"]["content"][kind]
    if kind == "application/json":
        validator(content["schema"]).validate(json.loads(data))
    wrong = "DELETE"
    status, headers, data = server.request(wrong, path)
    assert status == 405 and method.upper() in headers["Allow"].split(", ")
    validator(DOC["components"]["schemas"]["Error"]).validate(json.loads(data))


@pytest.mark.parametrize("extra", [{"logprobs": 2, "echo": True}, {"timeline": True, "n": 2},
                                   {"return_tokens": True}])
def test_variants_are_described(server, extra):
    body = {"prompt": "Once there was a", "max_tokens": 4, **extra}
    validator(DOC["components"]["schemas"]["CompletionRequest"]).validate(body)
    answer = server.json("POST", "/v1/completions", body)
    validator(DOC["components"]["schemas"]["Completion"]).validate(answer)


def test_schemathesis(start_server, tmp_path):
    """Requests made from the description, right and wrong ones: no answer breaks it, none is 5xx."""
    program = schemathesis()
    if not program:
        pytest.skip("schemathesis is not installed (scripts/client.sh)")
    server = start_server("--context", 64, "--api-key", "k")
    checks = ["not_a_server_error", "status_code_conformance", "content_type_conformance",
              "response_headers_conformance", "response_schema_conformance", "unsupported_method",
              "allow_header_conformance"]
    r = subprocess.run(
        [program, "run", server.url + "/openapi.json", "-H", "Authorization: Bearer k",
         "--checks", ",".join(checks), "--phases", "examples,coverage,fuzzing",
         "--max-examples", os.environ.get("WEIR_SCHEMATHESIS_EXAMPLES", "30"),
         "--generation-deterministic", "--warnings", "off", "--no-color"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert r.returncode == 0, r.stdout[-6000:] + r.stderr[-2000:]
    generated = re.search(r"(\d+) generated", r.stdout)
    assert generated and int(generated.group(1)) > 300, r.stdout[-2000:]
    text = server.request("GET", "/metrics", headers={"Authorization": "Bearer k"})[2].decode()
    assert not re.search(r'weir_http_requests_total\{status="5', text)
