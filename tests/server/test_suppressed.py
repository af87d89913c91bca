"""Tokens that a model's file says must never come."""

import sys

import pytest

from conftest import ROOT, Server

sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import tiny_model as tiny  # noqa: E402

KEY = "tokenizer.ggml.suppress_tokens"
PROMPT = [1, 5, 6, 7]
N = 40
ASKS = [{"temperature": 0}, {"temperature": 1.5, "seed": 3}, {"temperature": 1, "seed": 4, "top_k": 5},
        {"temperature": 0, "repetition_penalty": 1.3}]


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """serve(ids): a server of the tiny model whose file suppresses these."""
    servers = []

    def begin(ids):
        path = tmp_path_factory.mktemp("model") / "tiny.gguf"
        path.write_bytes(tiny.model(set_keys={KEY: (tiny.I32, ids)} if ids else ()))
        servers.append(Server("-m", path, "--threads", "1"))
        servers[-1].wait_ready()
        return servers[-1]

    yield begin
    for s in servers:
        s.stop()


def tokens(server, **more):
    asked = {"prompt": PROMPT, "max_tokens": N, "ignore_eos": True, "return_token_ids": True, **more}
    return server.json("POST", "/v1/completions", asked)["choices"][0]["token_ids"]


def test_suppressed_tokens_never_come(serve):
    free = serve([])
    usual = {i for ask in ASKS for i in tokens(free, **ask)}
    never = sorted(usual)[:max(1, len(usual) // 2)]
    server = serve([*never, 10 ** 6, -1])
    for ask in ASKS:
        for more in ({}, {"logit_bias": {str(i): 100 for i in never}}, {"logprobs": 3}, {"min_tokens": N}):
            got = tokens(server, **ask, **more)
            assert len(got) == N and not set(got) & set(never)


def test_others_come_as_they_did(serve):
    free, server = serve([]), serve([3])
    for ask in ASKS:
        usual = tokens(free, **ask, logit_bias={"3": -100})
        assert tokens(server, **ask) == usual
