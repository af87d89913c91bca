"""Where a model runs: the routes about the GPU, and a whole server on the emulated one."""

import json
import math
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import MODEL, WEIR, Server
from test_no_numbers import with_values

# built beside the program where there is a C++ compiler (tests/cuda)
PLUGIN = Path(WEIR).resolve().parent / "tests" / "cuda" / "libweir_cuda_emulated.so"
needs_plugin = pytest.mark.skipif(
    not PLUGIN.exists(), reason="the plugin over the emulated device is not built")
SMALL = ("--context", 256, "--batch-tokens", 32, "--max-running", 4, "--gpu-memory", "0.5")
PROMPT = {"prompt": "What is 2 + 3?", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


def weir(*args, **env):
    return subprocess.run([WEIR, *map(str, args)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "WEIR_EMU_MEMORY_MIB": "256", **env})


@pytest.fixture(scope="module")
def gpu():
    before = dict(os.environ)
    os.environ.update(WEIR_CUDA_PLUGIN=str(PLUGIN), WEIR_EMU_MEMORY_MIB="256")
    s = Server("--device", "cuda", *SMALL).wait_ready()
    yield s
    s.stop()
    os.environ.clear()
    os.environ.update(before)


def numbers(value):
    """All that a figure of this answer is, however deep."""
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers(v)]
    return [] if isinstance(value, str) else [value]


def test_a_cpu_says_so(start_server):
    s = start_server("--device", "cpu")
    status = s.json("GET", "/v1/gpu/status")
    assert status["cache_ready"] is False and status["on_gpu"] is False
    assert status["cache_memory_bytes"] == status["batch_threshold"] == status["recommended_min_batch"] == 0
    assert status["device"].startswith("cpu ") and len(numbers(status)) > 50 and not any(numbers(status))
    warm = s.json("POST", "/v1/gpu/warmup")
    assert "CPU" in warm.pop("message")
    assert warm == {"success": False, "memory_bytes": 0, "num_layers": 0}
    assert s.metric("weir_gpu_active") == 0
    assert "weir_gpu_memory_bytes" not in s.request("GET", "/metrics")[2].decode()
    assert "device: cpu" in s.log


@needs_plugin
def test_a_server_on_the_device(gpu):
    first = gpu.json("POST", "/v1/completions", PROMPT)
    again = gpu.json("POST", "/v1/completions", {**PROMPT, "n": 3})
    assert first["usage"]["completion_tokens"] == 12
    assert {c["text"] for c in again["choices"]} == {first["choices"][0]["text"]}
    assert gpu.metric("weir_step_allocations_total") == 0


@needs_plugin
@pytest.mark.parametrize("tensor, value", [("output_norm.weight", math.nan),
                                           ("output_norm.weight", math.inf),
                                           ("blk.0.attn_norm.weight", 1e30)])
def test_no_text_without_numbers(tensor, value, start_server, tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_CUDA_PLUGIN", str(PLUGIN))
    monkeypatch.setenv("WEIR_EMU_MEMORY_MIB", "256")
    s = start_server("--device", "cuda", *SMALL, "-m", with_values(tmp_path / "m.gguf", tensor, value))
    for more in ({}, {"temperature": 1, "top_k": 5}, {"logprobs": 2}):
        a = s.json("POST", "/v1/completions", {**PROMPT, **more}, status=500)
        assert "no number" in a["error"]["message"]


@needs_plugin
def test_penalties_look_at_a_window(gpu):
    """A history of the device's counts all that a sequence holds: the host chooses."""
    body = {"prompt": [65, 66, 67], "n_predict": 9, "temperature": 0, "return_tokens": True, "ignore_eos": True,
            "logit_bias": [[t, 90] for t in range(65, 75)], "repeat_penalty": 50}
    two, every = [gpu.json("POST", "/completion", {**body, "repeat_last_n": n})["tokens"] for n in (2, -1)]
    assert len(set(every)) == 9 and set(two) != set(every)
    held = body["prompt"] + two
    assert all(held[i] not in held[i - 2:i] for i in range(2, len(held)))


@needs_plugin
def test_its_figures(gpu):
    gpu.json("POST", "/v1/completions", PROMPT)
    warm = gpu.json("POST", "/v1/gpu/warmup")
    status = gpu.json("GET", "/v1/gpu/status")
    assert warm["success"] is True and warm["num_layers"] > 0
    assert warm["memory_bytes"] == status["cache_memory_bytes"] > 0
    assert warm == gpu.json("POST", "/v1/gpu/warmup")
    assert status["cache_ready"] is True and status["on_gpu"] is True
    assert status["wgmma"] in ("used", "off", "none")
    m, pool, queue = status["memory"], status["pool"], status["queue"]
    taken = (m["weights_bytes"] + m["kv_bytes"] + m["workspace_bytes"] + m["buffers_bytes"])
    assert taken == status["cache_memory_bytes"] <= m["limit_bytes"] == m["total_bytes"] // 2 # --gpu-memory 0.5
    assert pool["warmed_up"] is True and pool["allocations_after_warmup"] == 0
    for name in ("hidden", "intermediate", "attention", "staging"):
        c = pool[name]
        assert c["held"] == c["available"] + c["lent"] and c["borrows"] == c["returns"] + c["lent"]
        assert 0 < c["peak_lent"] <= c["held"]
        for metric, field in (("borrows_total", "borrows"), ("returns_total", "returns"),
                              ("buffers", "held"), ("peak", "peak_lent")):
            assert gpu.metric(f'weir_gpu_pool_{metric}{{class="{name}"}}') == c[field]
    for metric, field in (("in_flight", "in_flight"), ("submitted_total", "submitted"),
                          ("completed_total", "completed"), ("stalls_total", "stalls")):
        assert gpu.metric(f"weir_gpu_queue_{metric}") == queue[field]
    assert queue["submitted"] >= queue["completed"] > 0 and 0 < queue["utilization"] <= 1
    assert queue["graphs"] > 0 and queue["graph_replays"] > 0
    moves = status["moves"]
    assert moves["waits"] == moves["blocks_out"] == moves["blocks_in"] == moves["bytes"] == 0
    assert gpu.metric('weir_gpu_blocks_moved_total{direction="out"}') == 0
    assert gpu.metric("weir_gpu_active") == 1
    assert gpu.metric('weir_gpu_memory_bytes{kind="weights"}') == m["weights_bytes"]
    assert gpu.metric('weir_gpu_pool_allocations_total{class="hidden"}') == 0
    figures = gpu.json("GET", "/v1/metrics")
    assert figures["cuda_path_active"] is True and figures["gpu_memory_used_bytes"] == taken
    assert figures["gpu_memory_total_bytes"] == m["total_bytes"]
    assert 0 < figures["gpu_utilization_percent"] <= 100
    batch = gpu.json("POST", "/v1/batch/completions", {"prompts": ["a", "b"], "max_tokens": 2})
    assert batch["stats"]["gpu_used"] is True
    for line in ("weights", "workspace", "buffers", "KV", "pinned"):
        assert gpu.log.count(f"cuda:0: {line}") == 1


@needs_plugin
def test_commands_on_the_device():
    env = {"WEIR_CUDA_PLUGIN": str(PLUGIN)}
    tokens = ("--tokens", "1,2,3,4,5,6,7,8", "--greedy", "4", "-m", MODEL)
    on_gpu = weir("logits", "--device", "cuda", *tokens, **env)
    assert on_gpu.returncode == 0, on_gpu.stderr
    assert json.loads(on_gpu.stdout) == json.loads(weir("logits", "--device", "cpu", *tokens).stdout)
    by_env = weir("logits", *tokens, WEIR_DEVICE="cuda:0", **env)
    assert by_env.stdout == on_gpu.stdout
    listed = weir("devices", **env).stdout.splitlines()
    assert listed[0] == "cpu" and listed[1].startswith("cuda:0 ") and "GiB" in listed[1]
    assert listed[2].startswith("CUDA: driver ")


@needs_plugin
def test_auto_takes_the_device_if_the_model_fits():
    env = {"WEIR_CUDA_PLUGIN": str(PLUGIN)}
    bench = ("bench", "-m", MODEL, "-p", 8, "-n", 3, "-b", 2, "-d", 5, "-r", 1)
    head, columns, *tests = weir(*bench, **env).stdout.splitlines()
    assert "cuda:0 " in head and columns.split()[-3:] == ["limit", "reached", "waiting"]
    assert [t.split()[0] for t in tests] == ["prefill", "decode"]
    for t in tests: # tokens/s, and the limit of the device that was measured
        assert float(t.split()[4]) > 0 and float(t.split()[7]) > 0 and t.split()[9] == "%"
    assert "cpu " in weir(*bench, "--gpu-memory", "1M", **env).stdout.splitlines()[0]
    refused = weir(*bench, "--gpu-memory", "1M", "--device", "cuda", **env)
    assert refused.returncode == 1 and "do not fit" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_plugin_that_cannot_be_loaded_is_not_absent(tmp_path):
    program = shutil.copy(WEIR, tmp_path / "weir")

    def devices(**env):
        env = {**{k: v for k, v in os.environ.items() if k != "WEIR_CUDA_PLUGIN"}, **env}
        return subprocess.run([program, "devices"], cwd=tmp_path, capture_output=True, text=True,
                              env=env).stdout

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libweir_cuda.so").write_text("no library")
    said = devices(LD_LIBRARY_PATH=str(tmp_path / "lib"))
    assert "cannot be loaded" in said and "lib/libweir_cuda.so: file too short" in said
    (tmp_path / "libweir_cuda.so").write_text("no library")
    assert f"no GPU: {tmp_path}/libweir_cuda.so: cannot be loaded: " in devices()
    assert "libweir_cuda.so: file too short" in devices(WEIR_CUDA_PLUGIN="libweir_cuda.so")


@needs_plugin
def test_a_device_that_the_plugin_was_not_compiled_for():
    env = {"WEIR_CUDA_PLUGIN": str(PLUGIN), "WEIR_EMU_CODE": "0"}
    why = "the plugin has no code for compute capability 9.0"
    assert f"cannot be used: {why}" in weir("devices", **env).stdout
    bench = ("bench", "-m", MODEL, "-p", 8, "-n", 3, "-b", 2, "-d", 5, "-r", 1)
    assert "cpu " in weir(*bench, **env).stdout.splitlines()[0]
    refused = weir(*bench, "--device", "cuda", **env)
    assert refused.returncode == 1 and why in refused.stderr and len(refused.stderr.splitlines()) == 1


@needs_plugin
def test_auto_says_why_it_passes_over_a_device(start_server, monkeypatch):
    for name, value in (("CUDA_PLUGIN", PLUGIN), ("EMU_DEVICES", 2), ("EMU_CODE", 0)):
        monkeypatch.setenv(f"WEIR_{name}", str(value))
    log = start_server("--device", "auto", *SMALL).log
    assert log.count("device: not cuda:0: cuda:0 (Emulated device): the plugin has no code") == 1
    assert log.count("device: cpu, as no GPU can be used: cuda:1 (Emulated device): ") == 1


def test_without_a_device():
    env = {"WEIR_CUDA_PLUGIN": "/nowhere/libweir_cuda.so"}
    out = weir("logits", "--device", "cuda", "-m", MODEL, "--tokens", "1", **env)
    assert out.returncode == 1 and out.stderr.count("\n") == 1 and "/nowhere" in out.stderr
    assert weir("logits", "-m", MODEL, "--tokens", "1", **env).returncode == 0
    listed = weir("devices", **env)
    assert listed.returncode == 0 and listed.stdout.startswith("cpu\nno GPU: ")
    for flag in (["--device", "gpu"], ["--device", "cuda:x"], ["--gpu-memory", "0"],
                 ["--gpu-memory", "1.5"], ["--gpu-memory", "-1"]):
        assert weir("logits", *flag, "--tokens", "1").returncode == 2
    assert weir("logits", "--tokens", "1", WEIR_DEVICE="gpu").returncode == 2
