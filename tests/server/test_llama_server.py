"""What llama-server's clients and operators find beside completions: infill, probabilities of the
draw, ends by lines, templates by name, names of the model, slots and adapters."""

import json
import math
import struct
import time
from pathlib import Path

import pytest

from conftest import MODEL

PROMPT = "What is the capital of France?"
ASK = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0}


def refused(server, path, body, word, status=400, method="POST"):
    got, _, data = server.request(method, path, body)
    assert got == status, (got, data)
    error = json.loads(data)["error"]
    assert error["code"] == status and word in error["message"], error


def with_numbers(path, numbers):
    """The model's file with more keys, {name: a number}."""
    data = Path(MODEL).read_bytes()
    (n_kv,) = struct.unpack_from("<Q", data, 16)
    new = b"".join(struct.pack("<Q", len(k)) + k.encode() + struct.pack("<II", 4, v) for k, v in numbers.items())
    head = struct.pack("<Q", 8) + b"test.pad" + struct.pack("<I", 8)
    pad = -(len(new) + len(head) + 8) % 32  # tensors' data begin at a multiple of 32
    new += head + struct.pack("<Q", pad) + b" " * pad
    Path(path).write_bytes(data[:16] + struct.pack("<Q", n_kv + len(numbers) + 1) + new + data[24:])
    return str(path)


# --- probabilities of the draw ---


def test_probabilities_of_the_draw(server):
    body = {"prompt": "Once", "n_predict": 6, "n_probs": 5, "post_sampling_probs": True, "seed": 3}
    a = server.json("POST", "/completion", {**body, "temperature": 1.2, "top_k": 4, "top_p": 1, "min_p": 0})
    assert a["generation_settings"]["post_sampling_probs"] is True
    assert len(a["completion_probabilities"]) == 6
    for p in a["completion_probabilities"]:
        assert set(p) == {"id", "token", "bytes", "prob", "top_probs"}
        top = p["top_probs"]
        assert len(top) == 4 and math.isclose(sum(t["prob"] for t in top), 1, abs_tol=1e-5)
        assert [t["prob"] for t in top] == sorted((t["prob"] for t in top), reverse=True)
        assert p["prob"] == next(t["prob"] for t in top if t["id"] == p["id"])
        assert set(top[0]) == {"id", "token", "bytes", "prob"}
    sure = server.json("POST", "/completion", {**body, "temperature": 0})["completion_probabilities"]
    assert all(p["prob"] == 1 and [t["prob"] for t in p["top_probs"]] == [1] for p in sure)
    same = server.json("POST", "/completion", {**body, "temperature": 0, "post_sampling_probs": False})
    assert [p["id"] for p in same["completion_probabilities"]] == [p["id"] for p in sure]
    assert all("logprob" in p for p in same["completion_probabilities"])


def test_probabilities_under_a_grammar(server):
    """What the grammar rules out cannot come."""
    a = server.json("POST", "/completion", {"prompt": "Once", "n_predict": 1, "n_probs": 9, "temperature": 1,
                                            "top_k": 0, "top_p": 1, "min_p": 0, "post_sampling_probs": True,
                                            "grammar": 'root ::= "a" | "b"'})
    (p,) = a["completion_probabilities"]
    assert {t["token"] for t in p["top_probs"]} <= {"a", "b"}
    assert math.isclose(sum(t["prob"] for t in p["top_probs"]), 1, abs_tol=1e-5)


# --- ends by lines ---


def test_a_line_with_less_indentation_ends_it(server):
    body = {"prompt": "x", "n_predict": 40, "temperature": 0, "grammar": 'root ::= "a\\n    b\\n  c\\nd"'}
    whole = server.json("POST", "/completion", body)
    assert whole["content"] == "a\n    b\n  c\nd"
    for n_indent, text in ((4, "a\n    b\n  "), (2, "a\n    b\n  c\n"), (5, "a\n    ")):
        a = server.json("POST", "/completion", {**body, "n_indent": n_indent})
        assert (a["content"], a["stop_type"], a["truncated"]) == (text, "limit", False)
        assert a["generation_settings"]["n_indent"] == n_indent
    a = server.json("POST", "/completion", {**body, "n_indent": 4, "stop": ["b"]})
    assert (a["content"], a["stop_type"]) == ("a\n    ", "word")
    a = server.json("POST", "/v1/completions", {**body, "n_indent": 4})
    assert a["choices"][0]["text"] == "a\n    b\n  "


def test_time_ends_it_at_a_newline(server):
    """However fast the server: a newline comes for each token, so it ends once the time is over."""
    body = {"prompt": "x", "n_predict": 900, "temperature": 0, "grammar": 'root ::= ("a\\n")*', "ignore_eos": True}
    a = server.json("POST", "/completion", {**body, "t_max_predict_ms": 1})
    assert a["stop_type"] == "limit" and a["truncated"] is False
    assert a["content"].endswith("\n") and len(a["content"]) < 900
    assert a["timings"]["predicted_ms"] > 1
    a = server.json("POST", "/completion", {**body, "n_predict": 20, "t_max_predict_ms": -1})
    assert a["tokens_predicted"] == 20


# --- metrics ---


def figures_of(server):
    """{name: value} of llama-server's; that each has its HELP and TYPE is checked."""
    status, headers, data = server.request("GET", "/metrics")
    lines = data.decode().splitlines()
    found = {}
    for i, line in enumerate(lines):
        if line.startswith("llamacpp:"):
            name, value = line.split(" ")
            assert lines[i - 2].startswith(f"# HELP {name} "), line
            assert lines[i - 1] in (f"# TYPE {name} counter", f"# TYPE {name} gauge")
            found[name.removeprefix("llamacpp:")] = float(value)
    assert abs(int(headers["Process-Start-Time-Unix"]) - time.time()) < 600
    return found


def test_metrics_in_its_names(start_server):
    s = start_server()
    before = figures_of(s)
    assert all(v == 0 for name, v in before.items()), before
    n_prompt = n_found = n_out = 0
    for n in (1, 9, 9):
        t = s.json("POST", "/completion", {"prompt": "the quick brown fox jumps over the lazy dog " * 3,
                                           "n_predict": n, "ignore_eos": True})["timings"]
        n_prompt, n_found, n_out = n_prompt + t["prompt_n"], n_found + t["cache_n"], n_out + t["predicted_n"]
    a = figures_of(s)
    assert n_found > 0 and n_out == 19
    assert (a["prompt_tokens_total"], a["prompt_tokens_cached_total"]) == (n_prompt, n_found)
    assert a["tokens_predicted_total"] == n_out and a["n_decode_total"] >= n_out
    assert a["n_tokens_max"] == (n_prompt + n_found) / 3 + 9
    assert (a["requests_processing"], a["requests_deferred"], a["n_busy_slots_per_decode"]) == (0, 0, 1)
    assert math.isclose(a["predicted_tokens_seconds"], 16 / a["tokens_predicted_seconds_total"], rel_tol=1e-3)
    assert math.isclose(a["prompt_tokens_seconds"], n_prompt / a["prompt_seconds_total"], rel_tol=1e-6)


# --- infill ---


@pytest.fixture
def marks(server):
    def one(text):
        (token,) = server.json("POST", "/tokenize", {"content": text})["tokens"]
        return token

    return {"tokenizer.ggml.fim_pre_token_id": one("<|im_start|>"),
            "tokenizer.ggml.suffix_token_id": one("<|im_end|>"),  # an older name
            "tokenizer.ggml.fim_mid_token_id": one("Q")}


GAP = {"input_prefix": "def f(", "input_suffix": "\n    return 1\n", "n_predict": 4, "temperature": 0}


def test_infill_wants_a_model_that_can(server):
    refused(server, "/infill", GAP, "prefix", status=501)


def test_infill(start_server, tmp_path, marks):
    s = start_server("-m", with_numbers(tmp_path / "m.gguf", marks), "--context", "128")
    a = s.json("POST", "/infill", {**GAP, "prompt": "x, ", "samplers": ["top_k", "top_p", "infill"]})
    bos = a["prompt"].removesuffix("<|im_start|>def f(x, <|im_end|>\n    return 1\nQ")
    assert bos != a["prompt"] and a["tokens_predicted"] <= 4 and isinstance(a["content"], str)
    files = [{"filename": "a.py", "text": "A" * 40}, {"text": "B"}]
    shown = s.json("POST", "/infill", {**GAP, "input_extra": files})["prompt"]
    assert shown.index("A" * 40) < shown.index("B") < shown.index("<|im_start|>def f(<|im_end|>")
    # those furthest away are left out whole, where not all fit
    shown = s.json("POST", "/infill", {**GAP, "input_extra": [{"text": "word " * 200}, *files]})["prompt"]
    assert "word word" not in shown and "A" * 40 in shown
    status, _, data = s.request("POST", "/infill", {**GAP, "stream": True})
    assert status == 200 and json.loads(data.decode().strip().split("\n\n")[-1][6:])["stop"] is True


def test_infill_as_editors_ask(start_server, tmp_path, marks):
    """What the plugins for vim and VS Code send: chunks with times, limits of time, an empty list of
    samplers, and a first request that only fills the cache and wants nothing back."""
    s = start_server("-m", with_numbers(tmp_path / "m.gguf", marks), "--context", "256")
    chunk = {"text": "int f(void);\n", "time": [1, 2], "filename": "a.c"}
    warm = {"input_prefix": "", "input_suffix": "", "input_extra": [chunk], "prompt": "", "n_predict": 0,
            "temperature": 0.0, "stream": False, "samplers": [], "cache_prompt": True, "t_max_prompt_ms": 1,
            "t_max_predict_ms": 1, "response_fields": [""]}
    assert s.json("POST", "/infill", warm) == {}
    names = ["content", "timings/prompt_n", "timings/predicted_n", "timings/predicted_per_second",
             "truncated", "tokens_cached"]
    ask = {"id_slot": 0, "input_prefix": "int g(void) {\n", "input_suffix": "\n}\n", "input_extra": [chunk],
           "prompt": "    return ", "n_predict": 24, "stop": [], "n_indent": 4, "top_k": 40, "top_p": 0.9,
           "stream": False, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True,
           "t_max_prompt_ms": 500, "t_max_predict_ms": 1000, "model": "", "response_fields": names}
    first = s.json("POST", "/infill", ask)
    assert set(first) == set(names) and isinstance(first["content"], str)
    assert s.json("POST", "/infill", ask)["tokens_cached"] > first["tokens_cached"] - 1


@pytest.mark.parametrize("change, word", [
    ({"input_prefix": None}, "input_prefix"), ({"input_suffix": 1}, "input_suffix"), ({"prompt": [1]}, "prompt"),
    ({"input_extra": {}}, "input_extra"), ({"input_extra": [{}]}, "input_extra[0]"),
    ({"input_extra": [{"text": "a"}, {"filename": 1, "text": "a"}]}, "input_extra[1]"),
    ({"input_prefix": "word " * 400}, "exceeds the available context size"),
])
def test_infill_refuses(start_server, tmp_path, marks, change, word):
    s = start_server("-m", with_numbers(tmp_path / "m.gguf", marks), "--context", "128")
    refused(s, "/infill", {**GAP, **change}, word)


# --- templates ---


def test_a_template_by_name(start_server):
    s = start_server("--chat-template", "llama3", "--verbose", "on")
    a = s.json("POST", "/chat/completions", {**ASK, "max_tokens": 1})
    assert a["__verbose"]["prompt"].endswith(
        f"<|start_header_id|>user<|end_header_id|>\n\n{PROMPT}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n")
    assert "__verbose" not in s.json("POST", "/chat/completions", {**ASK, "max_tokens": 1, "verbose": False})


def test_a_template_as_text_and_none(start_server):
    s = start_server("--chat-template", "Say: {{ messages[0].content }}")
    assert s.json("POST", "/apply-template", ASK)["prompt"] == f"Say: {PROMPT}"
    s.stop()
    s = start_server("--chat-template", "none")
    message = s.json("POST", "/v1/chat/completions", ASK, status=501)["error"]["message"]
    assert "turned off" in message and "--chat-template none" in message and "the model" not in message


def test_a_model_without_a_template_has_chatml(start_server, tmp_path):
    data = Path(MODEL).read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_templat_")
    (tmp_path / "m.gguf").write_bytes(data)
    s = start_server("-m", tmp_path / "m.gguf")
    assert "no chat template" in s.log and "ChatML" in s.log
    shown = s.json("POST", "/apply-template", ASK)["prompt"]
    assert shown == f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"


def test_variables_that_templates_expect(start_server):
    s = start_server("--chat-template", "{{ date_string }}|{{ datetime }}|{{ not enable_thinking }}")
    day, american, off = s.json("POST", "/apply-template", ASK)["prompt"].split("|")
    assert off == "False" and day.split()[2] == american.split()[2] and day.split()[0] == american.split()[1]
    own = {**ASK, "chat_template_kwargs": {"date_string": "never", "enable_thinking": False}}
    shown = s.json("POST", "/apply-template", own)["prompt"]
    assert shown.startswith("never|") and shown.endswith("|True")


def test_the_assistant_can_have_begun(server):
    """On the route that only llama-server's clients use it goes on from a last message of the assistant's."""
    turns = ASK["messages"] + [{"role": "assistant", "content": "The capital of"}]
    a = server.json("POST", "/chat/completions", {**ASK, "messages": turns})
    assert a["choices"][0]["message"]["content"] == " France is Paris."
    for more in ({"continue_final_message": False}, {}):
        path = "/chat/completions" if more else "/v1/chat/completions"
        a = server.json("POST", path, {**ASK, "messages": turns, "verbose": True, "max_tokens": 1, **more})
        assert a["__verbose"]["prompt"].endswith("<|im_end|>\n<|im_start|>assistant\n")
    server.json("POST", "/chat/completions", {**ASK, "messages": turns + turns[-1:]}, status=400)


# --- the model's names, and where it answers ---


def test_names_and_tags(start_server):
    s = start_server("--alias", "writer, fim,coder", "--tags", "small")
    (model,) = s.json("GET", "/v1/models")["data"]
    assert model["id"] == "coder" and model["aliases"] == ["coder", "fim", "writer"] and model["tags"] == ["small"]
    meta = model["meta"]
    assert meta["n_params"] > 1000 and meta["size"] > 1000 and meta["n_ctx"] == model["max_model_len"]
    for name in ("writer", "fim", "coder", "default"):
        assert s.json("GET", f"/v1/models/{name}")["id"] == "coder"
        body = {"prompt": "a", "max_tokens": 1, "model": name}
        assert s.json("POST", "/v1/completions", body)["model"] == "coder"
    s.json("POST", "/v1/completions", {"prompt": "a", "model": "other"}, status=404)


def test_a_prefix_of_all_routes(start_server):
    # "listening" comes before the routes are asked, and the fixture asks below the root
    from conftest import Server
    s = Server("--api-prefix", "/llm/a")
    try:
        s._wait(lambda: s.request("GET", "/llm/a/health")[0] == 200, "to be ready")
        assert s.json("GET", "/llm/a/v1/models")["object"] == "list"
        assert s.json("GET", "/llm/a/openapi.json")["servers"] == [{"url": "/llm/a"}]
        for path in ("/health", "/v1/models", "/llm/ab/health", "/llm/a"):
            status, _, data = s.request("GET", path)
            assert status == 404 and "below /llm/a" in json.loads(data)["error"]["message"], path
        # an error that no route made has the shape of the route all the same
        status, _, data = s.request("POST", "/llm/a/v1/messages", b"{" * (17 << 20))
        assert status == 413 and json.loads(data)["type"] == "error"
    finally:
        s.stop()


def test_the_usual_length(start_server):
    s = start_server("--max-tokens", "7")
    body = {"prompt": "Once", "ignore_eos": True}
    assert s.json("POST", "/v1/completions", body)["usage"]["completion_tokens"] == 7
    assert s.json("POST", "/v1/completions", {**body, "max_tokens": 9})["usage"]["completion_tokens"] == 9
    assert s.json("POST", "/completion", body)["tokens_predicted"] == 7
    assert s.json("POST", "/completion", {**body, "n_predict": 9})["tokens_predicted"] == 9
    chat = s.json("POST", "/v1/chat/completions", {**ASK, "ignore_eos": True})
    assert chat["usage"]["completion_tokens"] == 7


def test_slots_and_adapters(server, start_server):
    refused(server, "/slots/0?action=save", {"filename": "x"}, "--cache-dir", status=501)
    assert server.json("GET", "/lora-adapters") == []
    assert server.json("POST", "/lora-adapters", []) == {"success": True}
    refused(server, "/lora-adapters", [{"id": 0, "scale": 1}], "adapter")
    refused(server, "/lora-adapters", {}, "array")
    s = start_server("--slots", "off")
    refused(s, "/slots", None, "--slots", status=501, method="GET")
    assert s.json("GET", "/props")["endpoint_slots"] is False
    props = server.json("GET", "/props")
    assert props["endpoint_slots"] is True and props["bos_token"] is not None and props["eos_token"]
    assert props["chat_template_caps"]["supports_system_role"] is True


@pytest.mark.parametrize("flags, word", [
    (["--chat-template", "chatm"], "chatml"), (["--alias", "a,,b"], "--alias"), (["--alias", "x" * 129], "--alias"),
    (["--api-prefix", "llm"], "--api-prefix"), (["--api-prefix", "/"], "--api-prefix"),
    (["--api-prefix", "/a b"], "--api-prefix"), (["--slots", "maybe"], "--slots"),
    (["--max-tokens", "0"], "--max-tokens"), (["--chat-template", "chatml", "--chat-template-file", "x"], "give one"),
])
def test_flags_that_are_wrong(flags, word):
    import subprocess
    from conftest import WEIR
    r = subprocess.run([WEIR, "serve", *flags], capture_output=True, text=True, timeout=300)
    assert r.returncode == 2 and word in r.stderr, r.stderr
