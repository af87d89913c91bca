"""Sampling as the model's file advises, for requests that do not say."""

import sys

import pytest
from pytest import approx

from conftest import ROOT, Server

sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import tiny_model as tiny  # noqa: E402

STRING, I32, F32 = tiny.STRING, tiny.I32, tiny.F32
ADVICE = {"temp": (F32, 0.7), "top_k": (I32, 20), "top_p": (F32, 0.5), "min_p": (F32, 0.0625),
          "penalty_repeat": (F32, 1.25), "penalty_last_n": (I32, 8)}
SAID = {"temperature": 0.7, "top_k": 20, "top_p": 0.5, "min_p": 0.0625, "repeat_penalty": 1.25, "repeat_last_n": 8}
ASK = {"prompt": [1, 5, 6, 7], "max_tokens": 24, "seed": 3, "ignore_eos": True, "return_token_ids": True}


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """serve(advice, flags ...): a server of the tiny model whose file advises that."""
    servers = {}

    def begin(advice, *flags):
        key = repr((advice, flags))
        if key not in servers:
            path = tmp_path_factory.mktemp("model") / "tiny.gguf"
            path.write_bytes(tiny.model(set_keys={f"general.sampling.{n}": v for n, v in advice.items()}))
            servers[key] = Server("-m", path, "--threads", "1", *flags)
            servers[key].wait_ready()
        return servers[key]

    yield begin
    for s in servers.values():
        s.stop()


def tokens(server, **more):
    return server.json("POST", "/v1/completions", {**ASK, **more})["choices"][0]["token_ids"]


def settings(server, **more):
    asked = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "verbose": True, **more}
    used = server.json("POST", "/v1/chat/completions", asked)["__verbose"]["generation_settings"]
    return {name: approx(used[name], rel=1e-6) for name in SAID}


def test_what_the_file_advises_is_used(serve):
    server, plain = serve(ADVICE), serve({})
    assert settings(server) == SAID
    assert server.json("GET", "/props")["default_generation_settings"]["params"]["temperature"] == approx(0.7)
    assert '"temperature":0.7,' in server.log and "advises" not in plain.log
    assert tokens(server) == tokens(plain, **SAID) != tokens(plain)


def test_requests_and_flags_come_first(serve):
    assert settings(serve(ADVICE), temperature=0, top_p=1) == {**SAID, "temperature": 0, "top_p": 1}
    assert settings(serve(ADVICE, "--temperature", "1.5", "--top-k", "0")) == {**SAID, "temperature": 1.5, "top_k": 0}


def test_it_can_be_switched_off(serve):
    off, plain = serve(ADVICE, "--model-sampling", "off"), serve({})
    assert settings(off) == settings(plain)
    assert tokens(off) == tokens(plain)


def test_what_cannot_be_followed_is_said(serve):
    bad = {"temp": (F32, 2.5), "top_k": (I32, -3), "top_p": (STRING, "0.5"), "min_p": (F32, float("nan")),
           "penalty_last_n": (F32, 0.5), "xtc_probability": (F32, 0.5), "mirostat": (I32, 0)}
    server = serve(bad)
    assert settings(server) == settings(serve({}))
    for name, value in (("temp", "2.5"), ("top_k", "-3"), ("penalty_last_n", "0.5"), ("xtc_probability", "0.5")):
        assert f"general.sampling.{name} is {value}" in server.log
    assert "general.sampling.top_p is not a number" in server.log
    assert "general.sampling.min_p is not a number" in server.log and "mirostat" not in server.log
