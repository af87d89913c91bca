"""The KV memory seen from outside: what is found, by whom, under pressure, and after a crash."""

import concurrent.futures
import os
import pathlib
import random
import signal
import subprocess
import threading
import time

import pytest

from conftest import WEIR, Server, few

KILLS = int(os.environ.get("WEIR_KILLS", "6"))
SECONDS = float(os.environ.get("WEIR_PRESSURE_SECONDS", few("6", "2")))  # of the test under pressure


@pytest.fixture(scope="module")
def server():
    """Of this file alone: what others ask begins with the same token now and then, and is found."""
    s = Server().wait_ready()
    yield s
    s.stop()


def ids(seed, n):
    rng = random.Random(seed)
    return [rng.randrange(300, 1500) for _ in range(n)]


def ask(server, prompt, **more):
    """-> text, cached tokens"""
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True, **more}
    answer = server.json("POST", "/v1/completions", body)
    return (answer["choices"][0]["text"],
            answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def kv(server):
    return server.json("GET", "/v1/kv")


def block_bytes(server):
    return kv(server)["block_bytes"]


def assert_whole(server):
    """Nothing is held, nothing is lost. The last event may overtake the step's own figures."""
    end = time.monotonic() + 60
    while kv(server)["blocks"]["in_use"] and time.monotonic() < end:
        time.sleep(0.02)
    made = server.json("GET", "/v1/kv?check=true")["checks"]["made"]
    end = time.monotonic() + 60  # one a second at most, and 1/20 of the time
    while kv(server)["checks"]["made"] == made and time.monotonic() < end:
        time.sleep(0.05)
        server.json("GET", "/v1/kv?check=true")
    assert kv(server)["checks"]["made"] > made
    assert kv(server)["checks"]["last"] == "ok"
    blocks = kv(server)["blocks"]
    assert blocks["in_use"] == 0
    assert blocks["free"] + blocks["cached"] == blocks["total"]


def test_a_repeated_prompt_leaves_one_token_to_compute(server):
    prompt = ids(1, 100)
    text, cached = ask(server, prompt)
    assert cached == 0
    assert ask(server, prompt) == (text, 99)
    assert ask(server, prompt[:64])[1] == 63  # whole blocks: the last one is copied


@pytest.mark.parametrize("same", [1, 15, 16, 17, 73, 96])
def test_a_prefix_is_found_to_the_token(server, same):
    prompt = ids(f"prefix {same}", 97)
    other = prompt[:same] + [299] + ids(f"rest {same}", 30)
    alone = ask(server, other, cache_prompt=False)
    ask(server, prompt)
    assert ask(server, other) == (alone[0], same)


def test_the_next_turn_finds_its_history(server):
    messages = [{"role": "user", "content": "What is 12 + 30?"}]
    body = {"messages": messages, "temperature": 0}
    first = server.json("POST", "/v1/chat/completions", body)
    messages += [first["choices"][0]["message"], {"role": "user", "content": "And 2 + 2?"}]
    second = server.json("POST", "/v1/chat/completions", body)
    # all of the first turn but the last token of its answer, which nothing was computed from
    assert (second["usage"]["prompt_tokens_details"]["cached_tokens"] >=
            first["usage"]["total_tokens"] - 1)


def test_salts_keep_tenants_apart(server):
    prompt = ids(3, 50)
    text, _ = ask(server, prompt, cache_salt="a")
    assert ask(server, prompt, cache_salt="a") == (text, 49)
    for other in ({"cache_salt": "b"}, {"cache_salt": "aa"}, {"cache_salt": "A"}):
        assert ask(server, prompt, **other) == (text, 0)
    assert ask(server, prompt) == (text, 0)
    assert ask(server, prompt, cache_salt="") == (text, 49)  # no salt
    assert ask(server, prompt, cache_salt=None) == (text, 49)


def test_opting_out(server):
    prompt = ids(4, 50)
    text, _ = ask(server, prompt, cache_prompt=False)
    assert ask(server, prompt, cache_prompt=False) == (text, 0)
    assert ask(server, prompt) == (text, 0)  # and nothing was left
    assert ask(server, prompt, cache_prompt=False) == (text, 0)
    assert ask(server, prompt) == (text, 49)


def test_echoed_logprobs_are_computed(server):
    prompt = ids(5, 40)
    want = ask(server, prompt, echo=True, logprobs=1)
    assert want[1] == 0
    assert ask(server, prompt, echo=True, logprobs=1) == want
    assert ask(server, prompt)[1] == 39


def test_prompts_that_do_not_look_are_neither_found_nor_missed(start_server):
    server = start_server("--pooling", "mean")

    def figures():
        return [server.metric(f"weir_{x}_total") for x in (
            "prefix_cache_queries", "prefix_cache_hits", "kv_hit_tokens", "kv_miss_tokens", "prompt_tokens")]

    def since(before):
        return [now - then for now, then in zip(figures(), before)]

    before, computed = figures(), server.metric("llamacpp:prompt_tokens_total")
    ask(server, ids(10, 40), cache_prompt=False)
    ask(server, ids(11, 40), echo=True, logprobs=1)
    server.json("POST", "/v1/embeddings", {"input": ids(12, 40)})
    assert since(before) == [0, 0, 0, 0, 120]
    assert server.metric("llamacpp:prompt_tokens_total") == computed + 120
    before = figures()
    ask(server, ids(10, 40))
    ask(server, ids(10, 40))
    assert since(before) == [80, 39, 39, 41, 80]


def test_choices_of_one_prompt_compute_it_once(server):
    before = kv(server)["prefix"]["miss_tokens"]
    body = {"prompt": ids(6, 200), "n": 4, "max_tokens": 4, "seed": 1, "ignore_eos": True}
    usage = server.json("POST", "/v1/completions", body)["usage"]
    assert usage["prompt_tokens"] == 200
    assert kv(server)["prefix"]["miss_tokens"] - before == 200 + 3


def test_clients_with_one_prefix_compute_it_once(start_server):
    server = start_server()
    prefix = ids(7, 700)
    prompts = [prefix + ids(f"mine {i}", 20) for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda p: ask(server, p), prompts))
    # the first computes all of its own, the others what follows (the first tokens of two tails may
    # happen to be equal)
    assert 700 + 8 * 20 - 8 <= kv(server)["prefix"]["miss_tokens"] <= 700 + 8 * 20
    assert_whole(server)


@pytest.mark.parametrize("field, value", [
    ("cache_salt", 5), ("cache_salt", "x" * 1025), ("cache_prompt", "yes"),
    ("priority", "high"), ("priority", 101), ("priority", -101), ("priority", 0.5)])
def test_wrong_fields_are_named(server, field, value):
    answer = server.json("POST", "/v1/completions", {"prompt": "a", field: value}, status=400)
    assert answer["error"]["param"] == field


def test_priority_is_accepted(server):
    for priority in (-100, 0, 100, None):
        ask(server, ids(8, 10), priority=priority)


def test_kv_route(server):
    ask(server, ids(9, 40))
    assert_whole(server)
    figures = kv(server)
    assert figures["blocks"]["published"] == figures["blocks"]["cached"]
    prefix = figures["prefix"]
    assert prefix["hit_rate"] == pytest.approx(
        prefix["hit_tokens"] / (prefix["hit_tokens"] + prefix["miss_tokens"]))
    assert server.metric("weir_kv_hit_tokens_total") == prefix["hit_tokens"]
    assert server.metric("weir_kv_evictions_total") == prefix["evicted_blocks"]
    assert figures["tiers"] == [] and figures["windows"] is None and figures["states"] is None
    assert server.request("POST", "/v1/kv", b"{}")[0] == 405


GEMMA3 = pathlib.Path(__file__).parents[1] / "data/golden/architectures/gemma3.f32.gguf"


def test_windows_keep_what_they_see(start_server):
    """Six layers of seven see 32 positions: a long prompt holds its blocks, but panes for them only,
    and is found again to the token."""
    server = start_server("-m", str(GEMMA3), "--max-running", "4", "--kv-memory", "1600K")
    windows = kv(server)["windows"]
    assert windows["tokens"] == 32
    assert windows["panes"]["total"] < kv(server)["blocks"]["total"]
    prompt = [random.Random(12).randrange(3, 250) for _ in range(400)]
    text, cached = ask(server, prompt, max_tokens=60)
    assert cached == 0
    figures = kv(server)
    assert figures["blocks"]["peak_in_use"] == 29
    assert figures["windows"]["panes"]["peak_in_use"] <= 32  # a chunk of 400, and the window
    assert figures["windows"]["passed"] >= 24
    assert ask(server, prompt, max_tokens=60) == (text, 399)
    assert_whole(server)
    panes = kv(server)["windows"]["panes"]
    assert panes["in_use"] == 0 and panes["free"] + panes["cached"] == panes["total"]
    for state in ("free", "in_use", "cached"):
        assert server.metric(f'weir_kv_panes{{state="{state}"}}') == panes[state]
    assert "panes of" in server.log


QWEN35 = pathlib.Path(__file__).parents[1] / "data/golden/recurrent/qwen35.f32.gguf"


def test_states_of_recurrent_layers(start_server, tmp_path):
    """A prompt is found where a state was kept, behind its last full block. The disk is left alone,
    and a line says so."""
    server = start_server("-m", str(QWEN35), "--max-running", "4", "--cache-dir",
                          str(tmp_path / "cache"))
    rng = random.Random(13)
    prompt = [rng.randrange(3, 250) for _ in range(100)]
    text, cached = ask(server, prompt, max_tokens=20)
    assert cached == 0
    assert ask(server, prompt, max_tokens=20) == (text, 96)
    figures = kv(server)
    assert figures["tiers"] == [] and figures["windows"] is None
    states = figures["states"]
    assert states["bytes"] > 0 and states["kept"] == 1 and states["in_use"] == 0
    assert states["free"] + states["cached"] == states["total"] and states["peak_in_use"] <= 4
    assert_whole(server)
    for state in ("free", "in_use", "cached"):
        assert server.metric(f'weir_kv_states{{state="{state}"}}') == states[state]
    assert server.metric("weir_kv_states_kept_total") == 1
    assert "states of" in server.log
    assert "the cache in RAM and on disk is off" in server.log


def test_forty_blocks_under_sixty_four_clients(start_server):
    """Everybody wants more than there is: slower, but the same answers, and nothing drifts."""
    probe = start_server()
    size = block_bytes(probe)
    rng = random.Random(10)
    texts = [ids(f"text {i}", 400) for i in range(4)]
    work = [(rng.choice(texts)[:rng.randrange(1, 300)] + ids(f"end {i}", rng.randrange(1, 40)),
             rng.randrange(1, 120)) for i in range(few(48, 16))]
    want = [ask(probe, prompt, max_tokens=n)[0] for prompt, n in work]
    server = start_server("--kv-memory", str(40 * size), "--overcommit", "1",
                          "--max-running", "32")
    assert kv(server)["blocks"]["total"] == 40
    errors, done, end = [], [], time.monotonic() + SECONDS

    def client(seed):
        mine = random.Random(seed)
        over = False
        while not over and not errors:
            over = time.monotonic() > end  # one at least
            i = mine.randrange(len(work))
            text, _ = ask(server, work[i][0], max_tokens=work[i][1],
                          priority=mine.choice([0, 0, 0, 1, -1]))
            done.append(i)
            if text != want[i]:
                errors.append(f"answer {i} differs")

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        list(pool.map(client, range(64)))
    assert not errors
    figures = kv(server)
    assert len(done) >= 64
    assert figures["preemptions"] > 0
    assert figures["prefix"]["evicted_blocks"] > 0
    assert server.metric("weir_step_allocations_total") == 0
    assert_whole(server)


# ---- the disk ---------------------------------------------------------------------------------

def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def tier(server):
    return kv(server)["tiers"][0]


def segments(directory):
    return sorted(directory.glob("*/*/*.kv"))


def test_a_crash_forgets_nothing_that_was_written(start_server, tmp_path):
    prompt = ids(11, 500)
    server = start_server("--cache-dir", str(tmp_path / "kv"))
    text, _ = ask(server, prompt)
    wait_for(lambda: tier(server)["stored"] >= 500 // 16)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    again = start_server("--cache-dir", str(tmp_path / "kv"))
    assert ask(again, prompt) == (text, 496)  # 31 full blocks
    assert tier(again)["hits"] == 31
    assert ask(again, prompt)[1] == 499  # and now from memory
    assert tier(again)["hits"] == 31
    assert ask(again, prompt, cache_salt="other") == (text, 0)
    assert again.metric('weir_tier_hits_total{tier="disk"}') == 31
    assert again.metric("weir_step_allocations_total") == 0
    assert_whole(again)


def test_ram_keeps_what_the_device_cannot(start_server, tmp_path):
    """Twelve prompts in turns over memory for four: from the second turn on they come from RAM; and
    with a directory too, from there after a restart."""
    prompts = [ids(f"ram {i}", 300) for i in range(12)]
    reference = start_server()
    want = [ask(reference, p)[0] for p in prompts]
    server = start_server("--kv-memory", str(4 * 20 * block_bytes(reference)), "--host-cache",
                          "256M", "--cache-dir", str(tmp_path / "kv"))
    assert [ask(server, p)[0] for p in prompts] == want
    again = [ask(server, p) for p in prompts]
    assert [text for text, _ in again] == want
    assert all(cached >= 288 for _, cached in again)  # 18 full blocks
    host, disk = kv(server)["tiers"]
    assert (host["name"], disk["name"]) == ("host", "disk")
    assert host["hits"] >= 8 * 18 and disk["hits"] == 0
    assert server.metric('weir_tier_hits_total{tier="host"}') == host["hits"]
    assert server.metric("weir_step_allocations_total") == 0
    assert_whole(server)
    wait_for(lambda: kv(server)["tiers"][1]["stored"] >= 12 * 18)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    after = start_server("--host-cache", "256M", "--cache-dir", str(tmp_path / "kv"))
    assert ask(after, prompts[3]) == (want[3], 288)
    assert kv(after)["tiers"][1]["hits"] == 18


def test_killed_again_and_again(start_server, tmp_path):
    """Whatever the moment: what is found afterwards is sound, and the answers are the same."""
    prompts = [ids(f"kill {i}", 300) for i in range(12)]
    reference = start_server()
    want = [ask(reference, p)[0] for p in prompts]
    rng = random.Random(12)
    for _ in range(KILLS):
        server = start_server("--cache-dir", str(tmp_path), "--cache-disk", "4M")
        killer = threading.Timer(rng.random() * 0.4, server.process.kill)
        killer.start()
        for i in rng.sample(range(12), 12):
            try:
                assert ask(server, prompts[i])[0] == want[i]
            except OSError:
                break
        killer.join()
        server.process.wait()
        checked = subprocess.run([WEIR, "cache", "verify", str(tmp_path)], capture_output=True,
                                 text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        used = sum(f.lstat().st_size for f in tmp_path.rglob("*") if f.is_file())
        assert used <= 4 << 20


def test_damaged_segments_are_ignored(start_server, tmp_path):
    prompt = ids(13, 200)
    server = start_server("--cache-dir", str(tmp_path))
    text, _ = ask(server, prompt)
    wait_for(lambda: tier(server)["stored"] >= 12)
    server.stop()
    for i, path in enumerate(segments(tmp_path)):
        data = bytearray(path.read_bytes())
        if i % 3 == 0:
            data[random.Random(i).randrange(len(data))] ^= 1 << (i % 8)
        elif i % 3 == 1:
            data = data[:len(data) // 2]
        else:
            data = bytearray(len(data))
        path.write_bytes(data)
    assert subprocess.run([WEIR, "cache", "verify", str(tmp_path)], capture_output=True,
                          check=False).returncode == 1
    again = start_server("--cache-dir", str(tmp_path))
    assert ask(again, prompt) == (text, 0)
    assert tier(again)["ignored"] > 0
    assert ask(again, prompt) == (text, 199)


def test_one_directory_two_servers(start_server, tmp_path):
    prompt = ids(14, 200)
    writer = start_server("--cache-dir", str(tmp_path))
    text, _ = ask(writer, prompt)
    wait_for(lambda: tier(writer)["stored"] >= 12)
    reader = start_server("--cache-dir", str(tmp_path))
    assert tier(writer)["writes"] and not tier(reader)["writes"]
    assert ask(reader, prompt) == (text, 192)
    other = ids(15, 200)
    ask(reader, other)
    assert tier(reader)["stored"] == 0


def test_a_directory_that_cannot_be(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    ended = subprocess.run([WEIR, "serve", "--port", "0", "--cache-dir", str(path)],
                           capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 1
    assert str(path) in ended.stderr


@pytest.mark.parametrize("flags", [["--cache-disk", "1G"], ["--overcommit", "1.5"],
                                   ["--overcommit", "x"], ["--cache-dir", ""],
                                   ["--host-cache", "0"],
                                   ["--cache-dir", "x", "--cache-disk", "0"]])
def test_wrong_flags(flags):
    ended = subprocess.run([WEIR, "serve", *flags], capture_output=True, text=True, check=False,
                           timeout=300)
    assert ended.returncode == 2
    assert flags[0] in ended.stderr or flags[-2] in ended.stderr
