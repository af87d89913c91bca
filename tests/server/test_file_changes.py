"""A model's file that is overwritten, cut short or deleted while it is served: what was loaded is in
memory of the server's own, so the answers stay the same to the last digit."""

import os
import pathlib
import shutil
import sys

import pytest

import conftest

sys.path.insert(0, str(conftest.ROOT / "tests" / "fuzz"))
import tiny_model as tiny  # noqa: E402


def overwritten(path):
    with open(path, "r+b") as f:
        f.write(os.urandom(path.stat().st_size))


def truncated(path):
    os.truncate(path, 0)


def halved(path):
    os.truncate(path, path.stat().st_size // 2)


def deleted(path):
    path.unlink()


@pytest.mark.parametrize("change", [overwritten, truncated, halved, deleted])
def test_answers_stay(tmp_path, monkeypatch, change):
    path = tmp_path / "served.gguf"
    shutil.copyfile(conftest.MODEL, path)
    check(path, path, monkeypatch, change)


@pytest.mark.parametrize("change", [overwritten, truncated])
def test_answers_stay_of_a_split_model(tmp_path, monkeypatch, change):
    for name, data in tiny.split().items():
        (tmp_path / name).write_bytes(data)
    first, second = (tmp_path / f"tiny-0000{i}-of-00003.gguf" for i in (1, 2))
    check(first, second, monkeypatch, change)


def check(path, changed, monkeypatch, change):
    monkeypatch.setattr(conftest, "MODEL", str(path))
    server = conftest.Server().wait_ready()
    try:
        before = answers(server)
        change(pathlib.Path(changed))
        assert answers(server) == before
    finally:
        server.stop()


def answers(server):
    """Of prompts with many different tokens, computed anew each time."""
    texts = ["The quick brown fox, 0123456789", "\u00e4\u4f60\u597d!\n\t{}[]", "ab ba abab"]
    body = {"prompt": texts, "temperature": 0, "max_tokens": 8, "cache_prompt": False, "echo": True,
            "logprobs": 2, "ignore_eos": True, "return_tokens": True}
    chat = {"messages": [{"role": "user", "content": "a b c"}], "temperature": 0, "max_tokens": 4,
            "cache_prompt": False}
    return (server.json("POST", "/v1/completions", body)["choices"],
            server.json("POST", "/v1/chat/completions", chat)["choices"])
