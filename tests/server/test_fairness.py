"""One greedy key among polite ones: by turns, and with a place for everybody at the door."""

import concurrent.futures
import json
import subprocess
import time

import pytest

from conftest import WEIR, few

COMPLETIONS = "/v1/completions"
NAMES = ("greedy", "alice", "bob")
CROWD = [f"polite-{i}" for i in range(19)]

pytestmark = pytest.mark.skipif(
    "--api-keys" not in subprocess.run([WEIR, "serve", "--help"], capture_output=True,
                                       text=True).stdout,
    reason="this build knows one key only")


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{"name": n, "key": n + "-key"} for n in (*NAMES, *CROWD)]}))
    path.chmod(0o600)
    return str(path)


def ask(server, name, i, n_tokens=100):
    body = {"prompt": f"{name} {i}", "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True}
    return server.request("POST", COMPLETIONS, body, {"Authorization": f"Bearer {name}-key"})[0]


def metrics(server, *names):
    """Of one moment."""
    text = server.request("GET", "/metrics", headers={"Authorization": "Bearer alice-key"})[2]
    values = dict(x.split() for x in text.decode().splitlines() if x.split()[0] in names)
    return [float(values[name]) for name in names]


def n_inside(server):
    return sum(metrics(server, "weir_requests_running", "weir_requests_waiting"))


def fill(server, pool, n, waiting):
    """n requests of the greedy key, so long that so many wait, however slow this program is."""
    greedy = [pool.submit(ask, server, "greedy", i, few(1200, 500)) for i in range(n)]
    end = time.monotonic() + 60
    while metrics(server, "weir_requests_waiting")[0] < waiting:
        assert time.monotonic() < end
        time.sleep(0.01)
    return greedy


def end_of(server, greedy, well=frozenset({200})):
    """What was answered was answered well; the rest is not waited for."""
    assert {g.result() for g in greedy if g.done()} <= well
    server.process.kill()
    server.process.wait(300)  # ended, so nobody asks it to stop


def test_polite_keys_are_not_behind_a_greedy_one(start_server, keys):
    s = start_server("--api-keys", keys, "--max-running", "1", "--threads", "1")
    with concurrent.futures.ThreadPoolExecutor(42) as pool:
        greedy = fill(s, pool, 40, 30)
        # two answers each, one after the other; in the order of arrival, all forty come first
        polite = [pool.submit(lambda n: [ask(s, n, i) for i in range(2)], n)
                  for n in ("alice", "bob")]
        assert [p.result() for p in polite] == [[200, 200], [200, 200]]
        waiting = sum(not g.done() for g in greedy)
        assert waiting >= 10, f"only {waiting} of the greedy key's requests still wait"
        end_of(s, greedy)


def test_a_greedy_key_does_not_fill_the_queue(start_server, keys):
    s = start_server("--api-keys", keys, "--max-running", "1", "--max-queue", "19", "--threads",
                     "1")
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        greedy = [pool.submit(ask, s, "greedy", i, few(1200, 500)) for i in range(32)]
        end = time.monotonic() + 60
        while sum(g.done() for g in greedy) + (inside := n_inside(s)) < 32:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert inside <= 16  # four fifths of the twenty places; others are answered 429
        polite = [pool.submit(ask, s, n, 0, 4) for n in ("alice", "bob")]
        assert [p.result() for p in polite] == [200, 200]
        end_of(s, greedy, {200, 429})


def test_one_greedy_key_among_nineteen_polite_ones(start_server, keys):
    """While each of nineteen has its two answers, the one that asks for sixty has about two more."""
    meanwhile = 60
    for _ in range(4):  # unless the polite ones were late
        s = start_server("--api-keys", keys, "--max-running", "1", "--threads", "1")
        with concurrent.futures.ThreadPoolExecutor(100) as pool:
            greedy = fill(s, pool, 60, 40)
            before = sum(g.done() for g in greedy)
            polite = [pool.submit(ask, s, n, i, 40) for n in CROWD for i in range(2)]
            assert [p.result() for p in polite] == [200] * 38
            meanwhile = min(meanwhile, sum(g.done() for g in greedy) - before)
            end_of(s, greedy)
        if meanwhile <= 12:
            break
    assert meanwhile <= 12, f"{meanwhile} answers of the greedy key came before the last polite one"
