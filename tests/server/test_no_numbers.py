"""A model whose values leave the range of numbers: its requests end with an error, none with text."""

import json
import math
import struct
from pathlib import Path

import pytest

from conftest import MODEL

WHY = "no number"
CHAT = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 8}


def with_values(path, tensor, value):
    """The model's file with each value of a tensor of F32 replaced."""
    data = bytearray(Path(MODEL).read_bytes())
    (n_tensors,) = struct.unpack_from("<Q", data, 8)
    first = b"token_embd.weight"
    at = data.index(struct.pack("<Q", len(first)) + first)
    places = {}
    for _ in range(n_tensors):
        (n,) = struct.unpack_from("<Q", data, at)
        name = data[at + 8 : at + 8 + n].decode()
        (n_dims,) = struct.unpack_from("<I", data, at + 8 + n)
        *dims, kind, offset = struct.unpack_from(f"<{n_dims}QIQ", data, at + 12 + n)
        places[name] = math.prod(dims), kind, offset
        at += 12 + n + n_dims * 8 + 12
    n_values, kind, offset = places[tensor]
    assert kind == 0
    begin = (at + 31) // 32 * 32 + offset
    data[begin : begin + 4 * n_values] = struct.pack("<f", value) * n_values
    Path(path).write_bytes(data)
    return path


@pytest.fixture(params=["nan", "too large for f16"])
def damaged(request, start_server, tmp_path):
    path = tmp_path / "m.gguf"
    if request.param == "nan":
        with_values(path, "output_norm.weight", math.nan)
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
