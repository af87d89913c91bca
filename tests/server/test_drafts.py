"""--draft-tokens: the same answers in fewer steps, and counts of it."""

import random
import subprocess

import pytest

from conftest import MODEL, WEIR

KINDS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


def counts(server):
    return [server.metric(f"llamacpp:spec_decode_{kind}_total") for kind in KINDS]


def ask(server, **body):
    answer = server.json("POST", "/v1/completions", body)
    return answer["choices"], answer["usage"]


def test_what_repeats_itself_takes_fewer_steps(start_server):
    plain, drafting = start_server(), start_server("--draft-tokens", "7")
    body = {"prompt": "Hello", "max_tokens": 120, "temperature": 0, "ignore_eos": True, "logit_bias": {"400": 100},
            "logprobs": 2}
    assert ask(plain, **body) == ask(drafting, **body)
    drafts, drafted, right = counts(drafting)
    assert 0 < drafts < drafted and right <= drafted
    assert right > 60
    assert drafting.metric("weir_steps_total") == plain.metric("weir_steps_total") - right
    assert counts(plain) == [0, 0, 0]


def test_answers_are_the_same(start_server):
    plain, drafting = start_server(), start_server("--draft-tokens", "5")
    rnd = random.Random(20261)
    for seed in range(40):
        text = " ".join(rnd.choice("one two three four five".split()) for _ in range(rnd.randint(2, 30)))
        body = {"prompt": text, "max_tokens": rnd.choice([1, 2, 17, 60]), "temperature": rnd.choice([0, 0.2, 1]),
                "seed": seed, "n": rnd.choice([1, 2]), "ignore_eos": rnd.random() < 0.7}
        if rnd.random() < 0.3:
            body["frequency_penalty"] = 0.7
        if rnd.random() < 0.3:
            body["stop"] = ["e", " two "]
        if rnd.random() < 0.3:
            body["logprobs"] = 3
        if rnd.random() < 0.3:
            body["min_tokens"] = body["max_tokens"] // 2
        assert ask(plain, **body) == ask(drafting, **body), body
    assert counts(drafting)[1] > 0


def test_forms_are_not_drafted(start_server):
    s = start_server("--draft-tokens", "7")
    choices, _ = ask(s, prompt="x", max_tokens=40, guided_regex="(abc ){8}")
    assert choices[0]["text"] == "abc " * 8
    assert counts(s) == [0, 0, 0]


@pytest.mark.parametrize("value", ["8", "-1", "x"])
def test_refused(value):
    r = subprocess.run([WEIR, "serve", "-m", MODEL, "--draft-tokens", value],
                       capture_output=True, text=True, timeout=300)
    assert r.returncode == 2 and "--draft-tokens" in r.stderr and "0 to 7" in r.stderr
