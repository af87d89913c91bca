"""Embeddings and reranking over HTTP: tiny encoders against a pass written in Python, the wire shapes
of OpenAI, llama-server, Jina and Text Embeddings Inference, and the built-in model as an embedder."""

import base64
import json
import math
import re
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import ROOT, WEIR, Server

sys.path.insert(0, str(ROOT / "tests" / "golden"))
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import tiny_model as tiny  # noqa: E402
import make_encoders as encoders  # noqa: E402

FOLDER = ROOT / "tests" / "data" / "golden" / "encoders"
EMBEDDINGS = "/v1/embeddings"
TEXTS = ["the river runs deep.", "stone", "light, the light?", "a deep stone runs the river light"]


def model_of(name):
    return str(FOLDER / f"{name}.f32.gguf")


@pytest.fixture(scope="module")
def serve():
    """serve(name): one server an encoder, kept for the module."""
    servers = {}

    def get(name):
        if name not in servers:
            servers[name] = Server("-m", model_of(name), "--kv-type", "f32", "--threads", "2")
            servers[name].wait_ready()
        return servers[name]

    yield get
    for s in servers.values():
        s.stop()


def ids_of(text):
    return [encoders.CLS, *encoders.tokenize(text), encoders.SEP]


def pooled(name, text):
    """As the file's pooling says, of length 1."""
    m, w = encoders.make(name)
    xs = encoders.forward(m, w, ids_of(text))
    x = xs[0] if m["pooling"] == 2 else [sum(c) / len(xs) for c in zip(*xs)]
    return unit(x)


def unit(x):
    length = math.sqrt(sum(v * v for v in x))
    return [v / length for v in x]


def nmse(got, want):
    assert len(got) == len(want)
    return sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want)


def vectors(answer):
    assert [d["index"] for d in answer["data"]] == list(range(len(answer["data"])))
    return [d["embedding"] for d in answer["data"]]


def embed(s, texts, **more):
    return vectors(s.json("POST", EMBEDDINGS, {"input": texts, **more}))


def floats_of(text):
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def refused(s, path, body, words, param=None, status=400):
    error = s.json("POST", path, body, status=status)["error"]
    assert words in error["message"], error
    assert error.get("param") == param  # llama-server's shape has none


# --- what the numbers are ----------------------------------------------------------------------

@pytest.mark.parametrize("name", ["bert", "nomic-bert"])
def test_encoder_matches(serve, name):
    s = serve(name)
    answer = s.json("POST", EMBEDDINGS, {"input": TEXTS, "model": "default"})
    for text, got in zip(TEXTS, vectors(answer)):
        assert nmse(got, pooled(name, text)) < 1e-9
    n = sum(len(ids_of(t)) for t in TEXTS)
    assert answer["usage"] == {"prompt_tokens": n, "total_tokens": n}
    assert answer["object"] == "list" and answer["model"] == f"{name}.f32"
    assert all(d["object"] == "embedding" for d in answer["data"])


def test_four_forms_of_input(serve):
    s = serve("bert")
    (want,) = embed(s, TEXTS[0])
    assert embed(s, [TEXTS[0]]) == [want]
    assert embed(s, ids_of(TEXTS[0])) == [want]  # ids are taken as they are
    assert embed(s, [ids_of(TEXTS[1]), ids_of(TEXTS[0])])[1] == want
    assert embed(s, ["stone", ids_of(TEXTS[0])])[1] == want


def test_tokens_of_a_text_as_they_are_embedded(serve):
    s = serve("bert")
    for text in (*TEXTS, ""):
        assert s.json("POST", "/tokenize", {"content": text, "add_special": True})["tokens"] == ids_of(text)
        assert s.json("POST", "/tokenize", {"content": text})["tokens"] == ids_of(text)[1:-1]


def test_llama_servers_forms_of_input(serve):
    s = serve("bert")
    text = embed(s, "hello world")[0]
    parts = {"content": [{"type": "text", "text": "hello "}, {"type": "text", "text": "world"}]}
    for one in ({"prompt_string": "hello world"}, parts):
        assert embed(s, one) == [text]
        assert embed(s, ["a", one])[1] == text
    inner = encoders.tokenize("hello world")
    mixed = [encoders.CLS, "hello world", encoders.SEP]
    assert embed(s, mixed) == embed(s, [encoders.CLS, *inner, encoders.SEP]) == [text]
    assert embed(s, [mixed, "a", {"prompt_string": "a"}])[0] == text


def test_base64_holds_the_same_floats(serve):
    s = serve("bert")
    plain, coded = embed(s, TEXTS), embed(s, TEXTS, encoding_format="base64")
    for a, b in zip(plain, coded):
        assert [struct.unpack("<f", struct.pack("<f", v))[0] for v in a] == floats_of(b)


def test_dimensions_are_a_prefix(serve):
    s = serve("bert")
    (whole,), (part,) = embed(s, "stone"), embed(s, "stone", dimensions=12)
    assert len(part) == 12
    assert nmse(part, unit(whole[:12])) < 1e-12


def test_norms(serve):
    s = serve("bert")
    (raw,) = embed(s, "stone", embd_normalize=-1)
    (one,) = embed(s, "stone", embd_normalize=1)
    (top,) = embed(s, "stone", embd_normalize=0)
    assert nmse(unit(raw), pooled("bert", "stone")) < 1e-9
    assert abs(sum(map(abs, one)) - 1) < 1e-5
    assert abs(max(map(abs, top)) - 32760) < 0.1


def test_llama_servers_shape(serve):
    s = serve("bert")
    (want,) = embed(s, "stone")
    for path in ("/embedding", "/embeddings"):
        assert s.json("POST", path, {"content": "stone"}) == [{"index": 0, "embedding": [want]}]
    assert s.json("POST", EMBEDDINGS, {"content": ["a", "stone"]})[1]["embedding"] == [want]


# --- a vector of each token --------------------------------------------------------------------

@pytest.mark.parametrize("name", ["bert", "nomic-bert"])
def test_each_tokens_vector(start_server, name):
    s = start_server("-m", model_of(name), "--kv-type", "f32", "--pooling", "none")
    m, w = encoders.make(name)
    answer = s.json("POST", "/embeddings", {"input": TEXTS})
    assert [d["index"] for d in answer] == list(range(len(TEXTS)))
    for text, d in zip(TEXTS, answer):
        want = encoders.forward(m, w, ids_of(text))
        assert len(d["embedding"]) == len(want)
        assert all(nmse(a, b) < 1e-9 for a, b in zip(d["embedding"], want))
    (one,) = s.json("POST", "/embedding", {"content": "stone", "embd_normalize": 2, "dimensions": 8})
    assert nmse(one["embedding"][1], unit(encoders.forward(m, w, ids_of("stone"))[1][:8])) < 1e-9
    refused(s, EMBEDDINGS, {"input": "stone"}, "/embeddings")
    refused(s, EMBEDDINGS, {"content": "stone"}, "/embeddings")


def test_each_tokens_vector_of_a_decoder(start_server, server):
    """Each is what its beginning alone would have as its last, to the bit: over chunks, in company."""
    s = start_server("--pooling", "none", "--batch-tokens", "64")
    text = " ".join(f"the {i}th word" for i in range(150))
    ids = server.json("POST", "/tokenize", {"content": text})["tokens"][:600]
    body = {"encoding_format": "base64", "embd_normalize": -1}
    with ThreadPoolExecutor(3) as pool:
        crowd = list(pool.map(lambda n: s.json("POST", "/embeddings", {"input": ids[:n], **body}),
                              (600, 600, 40)))
    whole = crowd[0][0]["embedding"]
    assert len(whole) == 600 and crowd[1] == crowd[0] and crowd[2][0]["embedding"] == whole[:40]
    for n in (1, 2, 63, 64, 65, 300, 600):
        assert embed(server, ids[:n], **body) == [whole[n - 1]]
    assert s.metric("weir_step_allocations_total") == 0
    # what of it there may be at once is bounded
    refused(s, "/embeddings", {"input": [ids] * 60}, "36000 tokens at once; without pooling, at most 32768")
    assert len(s.json("POST", "/embeddings", {"input": ids[:3]})[0]["embedding"]) == 3
    assert s.json("POST", "/completion", {"prompt": "Once", "n_predict": 2})["tokens_predicted"] == 2


def test_command_line(serve):
    run = subprocess.run([WEIR, "embed", "-m", model_of("bert"), *TEXTS], check=True,
                         capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    for text, got in zip(TEXTS, lines):
        assert nmse(got, pooled("bert", text)) < 1e-9
    piped = subprocess.run([WEIR, "embed", "-m", model_of("bert")], input="\n".join(TEXTS) + "\n",
                           check=True, capture_output=True, text=True, timeout=300)
    assert piped.stdout == run.stdout
    each = subprocess.run([WEIR, "embed", "-m", model_of("bert"), "--pooling", "none", "--raw", *TEXTS],
                          check=True, capture_output=True, text=True, timeout=300)
    m, w = encoders.make("bert")
    for text, got in zip(TEXTS, [json.loads(line) for line in each.stdout.splitlines()]):
        want = encoders.forward(m, w, ids_of(text))
        assert len(got) == len(want) and all(nmse(a, b) < 1e-9 for a, b in zip(got, want))
    long = subprocess.run([WEIR, "embed", "-m", model_of("bert"), "a", "a " * 95],
                          capture_output=True, text=True, timeout=300)
    assert long.returncode == 1 and "text 2" in long.stderr and "97" in long.stderr


@pytest.mark.parametrize("form", ["float", "base64"])
def test_large_answers_are_those_of_small_ones(serve, form):
    """So many values that another thread writes them."""
    s = serve("bert")
    n = 16384 // len(embed(s, "stone")[0]) + 1
    texts = [TEXTS[i % len(TEXTS)] for i in range(min(n, 2048))]
    small = [embed(s, text, encoding_format=form)[0] for text in TEXTS]
    assert embed(s, texts, encoding_format=form) == [small[i % len(TEXTS)] for i in range(len(texts))]


def test_a_client_that_leaves_while_its_answer_is_made(serve):
    s = serve("bert")
    host, port = s.url.removeprefix("http://").rsplit(":", 1)
    body = json.dumps({"input": ["stone"] * 2048}).encode()
    request = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for wait in (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5):
        with socket.create_connection((host, int(port)), timeout=300) as c:
            c.sendall(request)
            time.sleep(wait)
    assert len(embed(s, ["stone"] * 2048)) == 2048


# --- what is refused ---------------------------------------------------------------------------

def test_too_long_names_both_numbers(serve):
    s = serve("bert")
    body = {"input": ["stone", "a " * 95]}
    error = s.json("POST", EMBEDDINGS, body, status=400)["error"]
    assert error["code"] == "context_length_exceeded" and error["param"] == "input[1]"
    assert "96" in error["message"] and "97" in error["message"]
    assert len(embed(s, "a " * 94)) == 1


def test_empty_text(serve, server):
    """What the model wants around a text is something to embed; of a model that wants nothing there
    is nothing."""
    s = serve("bert")
    empty = embed(s, "")[0]
    assert embed(s, ["a", ""])[1] == empty == embed(s, {"prompt_string": ""})[0]
    assert nmse(empty, pooled("bert", "")) < 1e-9
    for text, field in (("", "input"), (["a", ""], "input[1]")):
        refused(server, EMBEDDINGS, {"input": text}, "empty", field)


def test_refusals(serve):
    s = serve("bert")
    chat = {"messages": [{"role": "user", "content": "hello"}]}
    refused(s, "/v1/chat/completions", chat, "makes embeddings")
    refused(s, "/v1/completions", {"prompt": "hello"}, "makes embeddings")
    refused(s, EMBEDDINGS, {}, "required", "input")
    refused(s, EMBEDDINGS, {"input": []}, "empty", "input")
    refused(s, EMBEDDINGS, {"input": ["a", 3.5]}, "integer", "input")
    refused(s, EMBEDDINGS, {"input": ["a", None]}, "string", "input[1]")
    refused(s, EMBEDDINGS, {"input": {"content": "a"}}, "content", "input")
    refused(s, EMBEDDINGS, {"input": {"content": [{"type": "image_url", "image_url": {"url": "x"}}]}},
            "image input is not supported", "input")
    refused(s, EMBEDDINGS, {"input": {"prompt_string": "a", "multimodal_data": ["eA=="]}}, "supported",
            "multimodal_data")
    refused(s, EMBEDDINGS, {"input": {"a": 1}}, "string", "input")
    refused(s, "/embedding", {"input": "a", "content": "a"}, "'content' cannot stand beside 'input'")
    refused(s, EMBEDDINGS, {"input": [1, 100000]}, "outside the vocabulary", "input")
    refused(s, EMBEDDINGS, {"input": "a", "dimensions": 41}, "dimensions", "dimensions")
    refused(s, EMBEDDINGS, {"input": "a", "encoding_format": "int8"}, "base64", "encoding_format")
    refused(s, EMBEDDINGS, {"input": "a", "truncate": True}, "not supported", "truncate")
    for field, value in [("output_dimension", 8), ("output_dtype", "int8"), ("embed_dtype", "float16"),
                         ("embedding_type", "binary"), ("embedding_types", ["int8"]), ("normalize", False),
                         ("normalized", False)]:
        refused(s, EMBEDDINGS, {"input": "a", field: value}, "not supported", field)
    s.json("POST", EMBEDDINGS, {"input": "a", "normalize": True, "normalized": True})
    refused(s, "/v1/rerank", {"query": "a", "documents": ["b"], "rank_fields": ["title"]}, "not supported", "rank_fields")
    refused(s, EMBEDDINGS, {"input": ["a"] * 2049}, "2048", "input")
    refused(s, "/v1/rerank", {"query": "a", "documents": ["b"]}, "no head")
    refused(s, EMBEDDINGS, {"input": "a", "model": "other"}, "not here", "model", 404)
    s.json("GET", EMBEDDINGS, status=405)


def test_embeddings_off(start_server):
    s = start_server("--embeddings", "off")
    refused(s, EMBEDDINGS, {"input": "a"}, "--embeddings off")
    refused(s, "/rerank", {"query": "a", "documents": ["b"]}, "--embeddings off")


def test_errors_have_the_routes_shape(serve):
    s = serve("bert")
    for path in ("/embedding", "/embeddings", "/rerank", "/reranking"):
        error = s.json("POST", path, {}, status=400)["error"]
        assert error["code"] == 400 and error["type"] == "invalid_request_error"
    assert s.json("POST", EMBEDDINGS, {}, status=400)["error"]["param"] == "input"


def test_a_key_pays_for_its_texts(start_server, tmp_path):
    """The texts' tokens count once; those of refused calls do not."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "a", "key": "ka", "tokens_per_minute": 1000,
                                          "priority": 0}]}))
    keys.chmod(0o600)
    s = start_server("--api-keys", keys)
    bearer = {"Authorization": "Bearer ka"}

    def ask(status, **body):
        got, headers, data = s.request("POST", EMBEDDINGS, body, bearer)
        assert got == status, data
        return headers["x-ratelimit-remaining-tokens"]

    ask(403, input=[[5] * 10], priority=1)
    assert ask(400, input=[[5] * 10, []]) == "1000"
    assert ask(200, input=[[5] * 10, [6] * 20]) == "970"
    text = s.request("GET", "/metrics", headers=bearer)[2].decode()
    assert 'weir_key_prompt_tokens_total{key="a"} 30\n' in text
    assert 'weir_key_generation_tokens_total{key="a"} 0\n' in text
    assert 'weir_key_requests_running{key="a"} 0\n' in text


# --- reranking ---------------------------------------------------------------------------------

QUERY, DOCUMENTS = "the river?", ["deep stone", "the river runs", "light", "a river, a stone."]


def logits():
    m, w = encoders.make("bert-rank")
    out = []
    for text in DOCUMENTS:
        first = ids_of(QUERY)
        ids = first + encoders.tokenize(text) + [encoders.SEP]
        out.append(encoders.scores(w, encoders.forward(m, w, ids, len(first))[0])[0])
    return out


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/reranking", "/v1/reranking",
                                  "/v2/rerank"])
def test_rerank(serve, path):
    s = serve("bert-rank")
    answer = s.json("POST", path, {"query": QUERY, "documents": DOCUMENTS, "raw_scores": True})
    want = logits()
    order = sorted(range(len(want)), key=lambda i: -want[i])
    assert [r["index"] for r in answer["results"]] == order
    for r in answer["results"]:
        assert abs(r["relevance_score"] - want[r["index"]]) < 1e-5
        assert "document" not in r
    n = sum(len(ids_of(QUERY)) + len(encoders.tokenize(d)) + 1 for d in DOCUMENTS)
    assert answer["usage"] == {"prompt_tokens": n, "total_tokens": n}


def test_rerank_options(serve):
    s = serve("bert-rank")
    body = {"query": QUERY, "documents": [{"text": d} for d in DOCUMENTS], "top_n": 2,
            "return_documents": True}
    results = s.json("POST", "/v1/rerank", body)["results"]
    want = logits()
    assert len(results) == 2
    for r in results:
        assert abs(r["relevance_score"] - 1 / (1 + math.exp(-want[r["index"]]))) < 1e-6
        assert r["document"] == {"text": DOCUMENTS[r["index"]]}
    plain = s.json("POST", "/rerank", {"query": QUERY, "texts": DOCUMENTS, "return_text": True})
    assert [r["index"] for r in plain[:2]] == [r["index"] for r in results]
    assert [r["text"] for r in plain] == [DOCUMENTS[r["index"]] for r in plain]
    assert [r["score"] for r in plain[:2]] == [r["relevance_score"] for r in results]


def test_timeline_of_scores(serve):
    s = serve("bert-rank")
    body = {"query": QUERY, "documents": DOCUMENTS, "timeline": True, "top_n": 1}
    choices = s.json("POST", "/v1/rerank", body)["timeline"]["choices"]
    assert [c["index"] for c in choices] == list(range(len(DOCUMENTS)))
    for c in choices:
        assert c["events"][0]["event"] == "queued" and c["events"][-1]["event"] == "done"
    plain = s.json("POST", "/rerank", {"query": QUERY, "texts": DOCUMENTS, "timeline": True})
    assert [[c["index"] for c in r["timeline"]["choices"]] for r in plain] == [[r["index"]] for r in plain]


def test_rerank_refusals(serve):
    s = serve("bert-rank")
    refused(s, "/v1/rerank", {"documents": ["a"]}, "required", "query")
    refused(s, "/v1/rerank", {"query": 3, "documents": ["a"]}, "string", "query")
    refused(s, "/v1/rerank", {"query": "a"}, "required", "documents")
    refused(s, "/v1/rerank", {"query": "a", "documents": []}, "0 texts", "documents")
    refused(s, "/v1/rerank", {"query": "a", "documents": ["a", 3]}, "string", "documents[1]")
    refused(s, "/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, "top_n", "top_n")
    refused(s, "/v1/rerank", {"query": "a", "documents": ["a", "a " * 95]}, "96", "documents[1]")
    refused(s, EMBEDDINGS, {"input": "a"}, "pooling")


TEMPLATE = "<s>q:{query}|d:{document}</s>"


@pytest.mark.parametrize("arch", ["qwen3", "qwen3vl"])
def test_reranker_that_generates(start_server, tmp_path, arch):
    """Qwen3's kind: a template in the file, the last position, and a choice between two labels."""
    path = tmp_path / "reranker.gguf"
    path.write_bytes(tiny.model(
        arch, set_tensors={"cls.output.weight": (0, (tiny.N_EMBD, 2))},
        set_keys={f"{arch}.pooling_type": (tiny.U32, 4),
                  f"{arch}.classifier.output_labels": (tiny.STRING, ["yes", "no"]),
                  "tokenizer.chat_template.rerank": (tiny.STRING, TEMPLATE)}))
    s = start_server("-m", str(path), "--pooling", "last", "--kv-type", "f32")
    text = TEMPLATE.replace("{query}", "ab a").replace("{document}", "b ab")
    run = subprocess.run([WEIR, "tokenize", "--special", "-m", str(path)], input=text, check=True,
                         capture_output=True, text=True, timeout=300)
    ids = [int(i) for i in re.findall(r"\d+", run.stdout)]
    (hidden,) = embed(s, ids, embd_normalize=-1)
    data = tiny.data_of("cls.output.weight", 0, (tiny.N_EMBD, 2))
    weights = struct.unpack(f"<{2 * tiny.N_EMBD}f", data)
    yes, no = (sum(a * b for a, b in zip(hidden, weights[i:i + tiny.N_EMBD]))
               for i in (0, tiny.N_EMBD))
    body = {"query": "ab a", "documents": ["b ab"]}
    answer = s.json("POST", "/v1/rerank", body)
    assert answer["usage"]["prompt_tokens"] == len(ids)
    assert abs(answer["results"][0]["relevance_score"] - 1 / (1 + math.exp(no - yes))) < 1e-6
    raw = s.json("POST", "/v1/rerank", {**body, "raw_scores": True})
    assert abs(raw["results"][0]["relevance_score"] - yes) < 1e-5
    forged = s.json("POST", "/v1/rerank", {"query": "ab a", "documents": ["b ab</s>"]})
    assert forged["usage"]["prompt_tokens"] == len(ids) + 4  # its bytes, not the token


# --- a model that generates ---------------------------------------------------------------------

def test_decoder_beside_chats(server):
    """The same bits alone, among others, and while chats run."""
    texts = [f"the {i}th text of many words" * (1 + i % 7) for i in range(20)]
    body = {"messages": [{"role": "user", "content": "Count to ten."}], "max_tokens": 40}
    alone = [embed(server, t, encoding_format="base64")[0] for t in texts]
    before = server.metric("weir_vectors_total")
    with ThreadPoolExecutor(12) as pool:
        chats = [pool.submit(server.json, "POST", "/v1/chat/completions", body) for _ in range(6)]
        crowd = list(pool.map(lambda t: embed(server, t, encoding_format="base64")[0], texts))
        for c in chats:
            assert c.result()["choices"][0]["message"]["content"]
    assert crowd == alone
    assert embed(server, texts, encoding_format="base64") == alone
    assert server.metric("weir_vectors_total") - before == 2 * len(texts)
    assert server.metric("weir_step_allocations_total") == 0


def test_pooling_is_chosen(start_server, server):
    mean = start_server("--pooling", "mean")
    text = "a text of some words"
    (a,), (b,) = embed(server, text), embed(mean, text)
    assert a != b and len(a) == len(b)
