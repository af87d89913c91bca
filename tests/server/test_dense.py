"""Matrices behind the pooling of embeddings (dense_2 and dense_3 of EmbeddingGemma)."""

import struct
import subprocess
import sys

import pytest
from pytest import approx

from conftest import ROOT, WEIR, Server

sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import tiny_model as tiny  # noqa: E402

SECOND, THIRD = "dense_2.weight", "dense_3.weight"
MID = 37
TEXTS = ["a b", "hello, the world", "b"]
N = tiny.N_EMBD


def model(arch="gemma-embedding", tensors=()):
    norms = {f"blk.{i}.{n}.weight": (0, (size,)) for i in range(tiny.N_LAYER)
             for n, size in {"attn_q_norm": tiny.HEAD, "attn_k_norm": tiny.HEAD, "post_attention_norm": N,
                             "post_ffw_norm": N}.items()}
    keys = {"gemma-embedding.attention.sliding_window": (tiny.U32, 4), "gemma-embedding.pooling_type": (tiny.U32, 1),
            "gemma-embedding.attention.causal": (tiny.BOOL, 0),
            "gemma-embedding.attention.sliding_window_pattern": (tiny.BOOL, [1] * tiny.N_LAYER)}
    if arch != "gemma-embedding":
        norms, keys = {}, {}
    return tiny.model(arch, set_keys=keys, set_tensors={**norms, **dict(tensors)})


DENSE = {SECOND: (0, (N, MID)), THIRD: (0, (MID, N))}


def times(name, shape, x):
    """The tensor as tiny_model writes it, times x."""
    n_in, n_out = shape
    w = struct.unpack(f"<{n_in * n_out}f", tiny.data_of(name, 0, shape))
    return [sum(w[r * n_in + i] * x[i] for i in range(n_in)) for r in range(n_out)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Without the matrices, and with them."""
    both = []
    for tensors in ({}, DENSE):
        path = tmp_path_factory.mktemp("model") / "tiny.gguf"
        path.write_bytes(model(tensors=tensors))
        both.append(Server("-m", path, "--threads", "2", "--kv-type", "f32"))
    for s in both:
        s.wait_ready()
    yield both
    for s in both:
        s.stop()


def raw(server, text, **more):
    return server.json("POST", "/embedding", {"content": text, "embd_normalize": -1, **more})[0]["embedding"]


@pytest.mark.parametrize("text", TEXTS)
def test_pooled_vectors_meet_both(servers, text):
    (plain,), (got,) = (raw(s, text) for s in servers)
    want = times(THIRD, (MID, N), times(SECOND, (N, MID), plain))
    assert got == approx(want, rel=1e-4, abs=1e-5) and got != approx(plain, rel=1e-2)


def test_of_length_one(servers):
    for text in TEXTS:
        (v,) = raw(servers[1], text)
        got = servers[1].json("POST", "/v1/embeddings", {"input": text})["data"][0]["embedding"]
        length = sum(x * x for x in v) ** 0.5
        assert got == approx([x / length for x in v], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("tensors", [
    {SECOND: (0, (N, MID))}, {THIRD: (0, (MID, N))}, {**DENSE, "dense_2.bias": (0, (MID,))},
    {SECOND: (0, (N + 1, MID)), THIRD: (0, (MID, N))}, {SECOND: (0, (N, MID)), THIRD: (0, (MID, N + 1))},
    {SECOND: (0, (N, MID)), THIRD: (0, (MID + 1, N))}, {SECOND: (0, (N * MID,)), THIRD: (0, (MID, N))}])
def test_others_are_refused(tmp_path, tensors):
    refused(tmp_path, model(tensors=tensors))


def test_other_models_are_refused(tmp_path):
    refused(tmp_path, model("llama", DENSE))


def refused(tmp_path, file):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(file)
    run = subprocess.run([WEIR, "embed", "-m", path, "a"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 1 and "dense_" in run.stderr and run.stderr.count("\n") == 1, run.stderr
