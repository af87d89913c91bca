"""The built-in model, asked through the server: the answers, to the letter.

models/questions.json holds conversations whose greedy answers are right and stable: every choice has
a margin that no rounding of a kernel comes near.
"""

import json
from concurrent.futures import ThreadPoolExecutor

from conftest import ROOT

QUESTIONS = json.loads((ROOT / "models" / "questions.json").read_text())


def ask(server, question):
    body = {"messages": question["messages"], "temperature": 0}
    return server.json("POST", "/v1/chat/completions", body)["choices"][0]


def test_answers_to_the_letter(server):
    assert len(QUESTIONS) >= 40
    for question in QUESTIONS:
        choice = ask(server, question)
        assert choice["message"]["content"] == question["answer"], question["messages"]
        assert choice["finish_reason"] == "stop"


def test_the_same_in_company(server):
    """All at once, streaming and not: a batch changes nothing."""

    def streamed(question):
        body = {"messages": question["messages"], "temperature": 0}
        chunks = server.events("/v1/chat/completions", body)
        return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)

    with ThreadPoolExecutor(32) as pool:
        whole = list(pool.map(lambda q: ask(server, q)["message"]["content"], QUESTIONS))
        parts = list(pool.map(streamed, QUESTIONS))
    for question, a, b in zip(QUESTIONS, whole, parts):
        assert a == b == question["answer"], question["messages"]
