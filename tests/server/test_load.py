"""bench/load.py counts what the server did, and says when something failed."""

import json
import subprocess
import sys

import pytest

from conftest import ROOT

SMALL = ["--clients", "2", "--requests", "3", "--prompt", "20", "--output", "12", "--prefix", "64",
         "--turns", "2", "--long-prompt", "300", "--delay", "0"]
ANSWERS = {"independent": 3, "shared": 3, "turns": 4, "interference": 2}
PROMPTS = {"independent": 3 * 20, "shared": 3 * 84, "turns": 2 * (84 + 84 + 12 + 20),
           "interference": 2 * 20 + 300}
WARM_UP, LONG_OUTPUT = (16, 4), 8


def load(server, *flags, status=0):
    done = subprocess.run([sys.executable, ROOT / "bench/load.py", "--url", server.url, *SMALL, *flags],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def counted(server):
    return [server.metric(f"weir_{what}_tokens_total") for what in ("prompt", "generation")]


@pytest.mark.parametrize("workload", ANSWERS)
@pytest.mark.parametrize("api", ["openai", "llama"])
def test_a_workload(server, workload, api):
    before = counted(server)
    figures = load(server, "--workload", workload, "--api", api)
    prompt, generated = [b - a for a, b in zip(before, counted(server))]
    n = ANSWERS[workload]
    assert (figures["answers"], figures["errors"], figures["tokens"]) == (n, 0, n * 12)
    assert prompt == WARM_UP[0] + PROMPTS[workload]
    assert generated == WARM_UP[1] + n * 12 + (LONG_OUTPUT if workload == "interference" else 0)
    assert 0 < figures["ttft_p50_ms"] <= figures["ttft_p99_ms"] < figures["seconds"] * 1000 + 10
    assert 0 <= figures["gap_p50_ms"] <= figures["gap_p99_ms"] <= figures["gap_max_ms"]
    assert ("long_prompt_ttft_ms" in figures) == (workload == "interference")


def test_failures_are_counted(server):
    figures = load(server, "--prompt", "100000", status=1)
    assert (figures["answers"], figures["errors"], figures["tokens"]) == (0, 3, 0)
    assert "context_length_exceeded" in figures["error"]
