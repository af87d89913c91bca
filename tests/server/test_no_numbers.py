"""A model whose values leave the range of numbers: its requests end with an error, none with text."""

import json
import math
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import MODEL

WHY = "no number"
CHAT = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 8}


def find_tensor(data, tensor):
    """-> its shape, its type, where its data begins."""
    (n_tensors,) = struct.unpack_from("<Q", data, 8)
    first = b"token_embd.weight"
    at = data.index(struct.pack("<Q", len(first)) + first)
    places = {}
    for _ in range(n_tensors):
        (n,) = struct.unpack_from("<Q", data, at)
        name = data[at + 8 : at + 8 + n].decode()
        (n_dims,) = struct.unpack_from("<I", data, at + 8 + n)
        *dims, kind, offset = struct.unpack_from(f"<{n_dims}QIQ", data, at + 12 + n)
        places[name] = dims, kind, offset
        at += 12 + n + n_dims * 8 + 12
    dims, kind, offset = places[tensor]
    return dims, kind, (at + 31) // 32 * 32 + offset


def with_values(path, tensor, value):
    """The model's file with each value of a tensor of F32 replaced."""
    data = bytearray(Path(MODEL).read_bytes())
    dims, kind, begin = find_tensor(data, tensor)
    n_values = math.prod(dims)
    assert kind == 0
    data[begin : begin + 4 * n_values] = struct.pack("<f", value) * n_values
    Path(path).write_bytes(data)
    return path


def with_nan_token(path, token):
    """The model's file with NaN as what a token means: as the scales of its blocks, all bits set."""
    data = bytearray(Path(MODEL).read_bytes())
    (n_embd, _), kind, begin = find_tensor(data, "token_embd.weight")
    row = n_embd // 32 * 34
    assert kind == 8  # Q8_0
    data[begin + token * row : begin + (token + 1) * row] = b"\xff" * row
    Path(path).write_bytes(data)
    return path


@pytest.fixture(params=["nan", "infinite", "too large for f16"])
def damaged(request, start_server, tmp_path):
    path = tmp_path / "m.gguf"
    if request.param == "nan":
        with_values(path, "output_norm.weight", math.nan)
    elif request.param == "infinite":  # logits are, either way
        with_values(path, "output_norm.weight", math.inf)
    else:  # keys and values are infinite as f16, and differences of such scores are no numbers
        with_values(path, "blk.0.attn_norm.weight", 1e30)
    return start_server("-m", path)


@pytest.mark.parametrize("more", [{}, {"temperature": 0}, {"logprobs": True, "top_logprobs": 2},
                                  {"response_format": {"type": "json_object"}}, {"top_k": 5, "top_p": 0.5}])
def test_no_text_comes_of_it(damaged, more):
    status, _, body = damaged.request("POST", "/v1/chat/completions", {**CHAT, **more})
    assert status == 500 and WHY in json.loads(body)["error"]["message"], body
    assert damaged.metric("weir_generation_tokens_total") == 0
    assert damaged.metric("weir_prompt_tokens_total") > 0


def test_a_stream_ends_with_the_error(damaged):
    status, _, body = damaged.request("POST", "/v1/chat/completions", {**CHAT, "stream": True})
    text = body.decode()
    assert WHY in text and '"content":"' not in text.replace('"content":""', ""), (status, text)
    assert damaged.request("GET", "/health")[0] == 200


@pytest.mark.parametrize("pooling", ["mean", "last", "none"])
def test_no_vector_comes_of_it(pooling, start_server, tmp_path):
    s = start_server("-m", with_nan_token(tmp_path / "m.gguf", 1000), "--pooling", pooling)
    status, _, body = s.request("POST", "/embeddings", {"input": [[7, 8, 9], [5, 1000, 6]]})
    assert status == 500 and "text 1: the model made a value that is no number" in body.decode(), body
    assert s.metric("weir_vectors_total") == 1
    assert s.metric('weir_request_success_total{finished_reason="error"}') == 1
    assert s.request("POST", "/embeddings", {"input": [[7, 8, 9]]})[0] == 200


@pytest.mark.parametrize("kv", ["f16", "bf16", "f32", "q8_0"])
def test_others_go_on(kv, start_server, tmp_path):
    """Where one token has no number, only who has it in the text ends; also in one step with others, in
    blocks of KV memory that held it before, and behind a beginning that both share."""
    bad = 1000
    flags = ["--kv-type", kv, "--kv-memory", "1M", "--context", 256, "--max-running", 8]
    whole = start_server(*flags)
    beginnings = [[5 + (i * k + 11 * k) % 900 for i in range(20 + 9 * k)] for k in range(1, 9)]
    ask = {"max_tokens": 12, "temperature": 0}

    def answer(server, ids):
        status, _, body = server.request("POST", "/v1/completions", {**ask, "prompt": ids})
        return status, json.loads(body)

    want = [answer(whole, ids)[1]["choices"][0]["text"] for ids in beginnings]
    s = start_server("-m", with_nan_token(tmp_path / "m.gguf", bad), *flags)
    asked = [ids + end for _ in range(3) for ids in beginnings for end in ([bad, 7, 8], [], [bad])]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda ids: answer(s, ids), asked))
    for ids, (status, body) in zip(asked, got):
        if bad in ids:
            assert status == 500 and WHY in body["error"]["message"]
        else:
            assert status == 200 and body["choices"][0]["text"] == want[beginnings.index(ids)]
    assert s.metric('weir_request_success_total{finished_reason="error"}') == 48
    assert s.metric("weir_generation_tokens_total") <= 24 * 12
