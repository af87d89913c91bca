"""--preset: what it sets, and that what is given wins."""

import subprocess

import pytest

from conftest import MODEL, WEIR


def most_rows(server):
    """The bound of the fullest step's bucket, after a prompt of 1500 tokens."""
    server.json("POST", "/v1/completions", {"prompt": [400] * 1500, "max_tokens": 1})
    rows = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
    total = server.metric('weir_batch_rows_bucket{le="+Inf"}')
    return next(n for n in rows if server.metric(f'weir_batch_rows_bucket{{le="{n}"}}') == total)


@pytest.mark.parametrize("flags, running, rows", [
    ([], 256, 512),
    (["--preset", "balanced"], 256, 512),
    (["--preset", "low-latency"], 32, 256),
    (["--preset", "low-latency", "--max-running", "7"], 7, 256),
    (["--max-running", "7", "--batch-tokens", "64", "--preset", "throughput"], 7, 64),
])
def test_sets_what_is_not_given(start_server, flags, running, rows):
    s = start_server(*flags)
    assert s.metric("weir_requests_running_max") == running
    assert most_rows(s) <= rows


def test_throughput_takes_long_steps(start_server):
    s = start_server("--preset", "throughput")
    assert s.metric("weir_requests_running_max") == 512


def test_the_environment_counts_as_given(start_server, monkeypatch):
    monkeypatch.setenv("WEIR_MAX_RUNNING", "9")
    monkeypatch.setenv("WEIR_PRESET", "low-latency")
    s = start_server()
    assert s.metric("weir_requests_running_max") == 9
    assert most_rows(s) <= 256


def test_no_such_preset():
    p = subprocess.run([WEIR, "serve", "-m", MODEL, "--preset", "fast"], capture_output=True,
                       text=True, timeout=300)
    assert p.returncode == 2 and "'fast' is not low-latency, balanced or throughput" in p.stderr
