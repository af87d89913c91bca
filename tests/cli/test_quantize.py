"""weir quantize: files that compute, the same for any number of threads, and no half file ever."""

import array
import json
import os
import pathlib
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import tiny_model as tiny  # noqa: E402
WEIR = os.path.abspath(os.environ.get("WEIR_BIN", ROOT / "build/weir"))
GOLDEN = ROOT / "tests/data/golden/quantised"
F16 = GOLDEN / "llama.F16.gguf"
TYPES = ["Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0"]
# nmse of logits: what rounding weights to so many bits does to this model, with room
MOST = {"Q8_0": 1e-3, "Q6_K": 3e-3, "Q5_K_M": 1e-2, "Q4_K_M": 5e-2, "Q4_0": 7e-2}


def weir(*args, limit=None):
    def set_limit():
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run([WEIR, *map(str, args)], capture_output=True, text=True, timeout=300,
                          preexec_fn=set_limit)


def failed(r, word):
    lines = r.stderr.splitlines()
    assert r.returncode == 1 and len(lines) == 1 and word in lines[0], r
    assert lines[0].startswith("weir quantize: ") and not r.stdout


def logits(model, tmp_path, like=GOLDEN / "llama.F16.json"):
    want = json.loads(like.read_text())
    out = tmp_path / "logits"
    r = weir("logits", "-m", model, "--tokens", ",".join(map(str, want["prompt"])), "--rows",
             ",".join(map(str, want["logit_rows"])), "--out", out, "--greedy", "1")
    assert r.returncode == 0, r.stderr
    return array.array("f", out.read_bytes())


@pytest.mark.parametrize("kind", TYPES)
def test_quantized_files_compute(kind, tmp_path):
    out = tmp_path / "out.gguf"
    r = weir("quantize", F16, out, kind)
    assert r.returncode == 0 and r.stdout.startswith(kind + ": "), r
    assert out.stat().st_size < F16.stat().st_size * 0.6
    assert [p.name for p in tmp_path.iterdir()] == ["out.gguf"]
    exact = array.array("f", (GOLDEN / "llama.F16.logits").read_bytes())
    got = logits(out, tmp_path)
    error = sum((x - y) ** 2 for x, y in zip(got, exact)) / sum(y * y for y in exact)
    assert 0 < error < MOST[kind], error


# Kept matrices, tied embeddings, layers without attn_v; in all but the last, rows that fit no block
@pytest.mark.parametrize("family", ["families/gemma3n", "families/gemma4", "families/falcon",
                                    "families/glm4moe", "families/minimax-m3", "recurrent/nemotron_h",
                                    "recurrent/mamba", "recurrent/rwkv6-small", "recurrent/rwkv6qwen2-small",
                                    "recurrent/rwkv7-small", "recurrent/arwkv7"])
def test_families_compute(family, tmp_path):
    model = GOLDEN.parent / (family + ".f32.gguf")
    out = tmp_path / "out.gguf"
    r = weir("quantize", model, out, "Q8_0")
    assert r.returncode == 0 and (" F16 " in r.stdout or "arwkv7" in family), r
    exact = array.array("f", model.with_suffix(".logits").read_bytes())
    got = logits(out, tmp_path, model.with_suffix(".json"))
    error = sum((x - y) ** 2 for x, y in zip(got, exact)) / sum(y * y for y in exact)
    assert 0 < error < 1e-2, error


def test_metadata_is_kept(tmp_path):
    out = tmp_path / "out.gguf"
    assert weir("quantize", F16, out, "q4_k_m").returncode == 0  # either case
    keys = [{line.split()[0]: line.split()[1:] for line in
             weir("inspect", "--full", p).stdout.split("tensors:")[0].splitlines()
             if line.startswith("  ")} for p in (F16, out)]
    assert keys[1].pop("general.file_type") == ["u32", "15"]
    assert keys[1].pop("general.quantization_version") == ["u32", "2"]
    keys[0].pop("general.file_type", None)
    keys[0].pop("general.quantization_version", None)
    assert keys[0] == keys[1] and len(keys[0]) > 10


def test_threads_do_not_change_a_byte(tmp_path):
    for n in (1, 3):
        assert weir("quantize", F16, tmp_path / str(n), "Q5_K_M", "--threads", n).returncode == 0
    assert (tmp_path / "1").read_bytes() == (tmp_path / "3").read_bytes()


def test_a_file_may_be_replaced_by_itself(tmp_path):
    model = tmp_path / "model.gguf"
    shutil.copy(F16, model)
    assert weir("quantize", F16, tmp_path / "want", "Q6_K").returncode == 0
    assert weir("quantize", model, model, "Q6_K").returncode == 0
    assert model.read_bytes() == (tmp_path / "want").read_bytes()


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    model = tmp_path / "model.gguf"
    shutil.copy(F16, model)
    model.chmod(0o600)
    assert weir("quantize", model, model, "Q8_0").returncode == 0
    assert model.stat().st_mode & 0o777 == 0o600


def test_no_room_leaves_what_was_there(tmp_path):
    out = tmp_path / "out.gguf"
    out.write_text("before")
    for limit in (1000, 300000):
        failed(weir("quantize", F16, out, "Q8_0", limit=limit), "out.gguf")
        assert out.read_text() == "before" and len(list(tmp_path.iterdir())) == 1


def test_failures(tmp_path):
    out = tmp_path / "out.gguf"
    failed(weir("quantize", "/nonexistent", out, "Q8_0"), "/nonexistent")
    failed(weir("quantize", "/etc/passwd", out, "Q8_0"), "GGUF")
    failed(weir("quantize", F16, "/nonexistent/out", "Q8_0"), "/nonexistent/out")
    failed(weir("quantize", GOLDEN / "llama.Q4_0.gguf", out, "Q8_0"), "Q4_0")
    assert not list(tmp_path.iterdir())
    data = bytearray(F16.read_bytes())
    data[-2:] = b"\xff\x7f"  # NaN, the last tensor's last weight
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(data)
    failed(weir("quantize", bad, out, "Q8_0"), "blk.0.ffn_up.weight")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.gguf"]


def test_rows_of_no_block_become_f16(tmp_path):
    model = GOLDEN.parent / "families/olmo-clamped.f32.gguf"
    r = weir("quantize", model, tmp_path / "out", "Q4_0")
    assert r.returncode == 0 and " F16 13" in r.stdout, r
    at = next(int(line.split()[-1]) for line in weir("inspect", model).stdout.splitlines()
              if "blk.1.attn_q.weight" in line)
    data = bytearray(model.read_bytes())
    data[at:at + 4] = struct.pack("<f", 7e4)
    large = tmp_path / "large.gguf"
    large.write_bytes(data)
    failed(weir("quantize", large, tmp_path / "no", "Q4_0"), "above 6.55e+04, more than F16")


def test_only_regular_files_are_replaced(tmp_path):
    fifo, folder, link = tmp_path / "fifo", tmp_path / "folder", tmp_path / "link"
    os.mkfifo(fifo)
    folder.mkdir()
    link.symlink_to(tmp_path / "nothing")
    to_fifo = tmp_path / "to_fifo"
    to_fifo.symlink_to(fifo)
    for out in (fifo, folder, link, to_fifo):
        failed(weir("quantize", F16, out, "Q8_0"), f"{out}: exists, and is no regular file")
    failed(weir("quantize", F16, "", "Q8_0"), "cannot create")
    assert stat.S_ISFIFO(fifo.stat().st_mode) and folder.is_dir() and link.is_symlink()
    assert len(list(tmp_path.iterdir())) == 4


def test_links_are_followed(tmp_path):
    real, link = tmp_path / "folder" / "real.gguf", tmp_path / "link"
    real.parent.mkdir()
    real.write_text("before")
    link.symlink_to("folder/real.gguf")
    assert weir("quantize", F16, link, "Q8_0").returncode == 0
    assert link.is_symlink() and real.read_bytes()[:4] == b"GGUF" and len(list(real.parent.iterdir())) == 1


def test_the_longest_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert weir("quantize", F16, "x" * 255, "Q8_0").returncode == 0
    failed(weir("quantize", F16, "x" * 256, "Q8_0"), "x: cannot")
    assert [p.name for p in tmp_path.iterdir()] == ["x" * 255]


@pytest.mark.parametrize("end", [signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGBUS, None])
def test_no_half_file_is_left(tmp_path, end):
    """However it ends: by a signal, or (None) since its input is cut short."""
    shape = (4096, 8192)
    data = tiny.write(tiny.keys(), {"blk.0.ffn_up.weight": (1, shape)})
    model, out = tmp_path / "in.gguf", tmp_path / "out" / "out.gguf"
    n_bytes = 2 * shape[0] * shape[1]
    full = data[:-n_bytes] + struct.pack("<8e", 1, -2, 0.3, 4, -0.5, 0.06, 7, -8) * (n_bytes // 16)
    model.write_bytes(full)
    out.parent.mkdir()
    # AddressSanitizer would catch SIGBUS first
    env = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_sigbus=0"}
    for _ in range(10):  # unless it was at its last lines before this program went on
        p = subprocess.Popen([WEIR, "quantize", model, out, "Q4_K_M", "--threads", "1"], env=env)
        while not list(out.parent.iterdir()):
            assert p.poll() is None
            time.sleep(0.001)
        time.sleep(0.05)  # it is past its first lines, and far from its last
        if end:
            p.send_signal(end)
        else:
            os.truncate(model, 4096)
        if p.wait(300) != 0 or end == signal.SIGPIPE:
            break
        out.unlink()
        model.write_bytes(full)
    assert p.returncode == (0 if end == signal.SIGPIPE else 1)
    assert [f.name for f in out.parent.iterdir()] == (["out.gguf"] if end == signal.SIGPIPE else [])


def test_values_that_no_scale_reaches_are_refused(tmp_path):
    data = bytearray((GOLDEN.parent / "variants/llama-yarn.f32.gguf").read_bytes())
    data[-4:] = struct.pack("<f", 9e6)  # the last weight of output.weight
    large, out = tmp_path / "large.gguf", tmp_path / "out.gguf"
    large.write_bytes(data)
    failed(weir("quantize", large, out, "Q8_0"), 'tensor "output.weight" holds values above 8.32e+06')
    assert not out.exists()
    data[-4:] = struct.pack("<f", 8e6)
    large.write_bytes(data)
    assert weir("quantize", large, out, "Q8_0").returncode == 0


@pytest.mark.parametrize("args", [[], ["a", "b"], ["a", "b", "Q9"], ["a", "b", "Q8_0", "c"],
                                  ["a", "b", "Q8_0", "--threads", "0"]])
def test_wrong_use_is_2(args):
    r = weir("quantize", *args)
    assert r.returncode == 2 and r.stderr and not r.stdout, r
