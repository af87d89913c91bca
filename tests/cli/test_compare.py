"""bench/compare.py with tools that only pretend: order, ratios, failures, JSON, interruption."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/compare"
sys.path.insert(0, str(ROOT / "bench"))
from compare_tools import KINDS, Plan, Test, Tool, last_line, objects  # noqa: E402

Test.__test__ = False  # a row of the table, nothing for pytest

# $n counts the tool's calls from 1; $k is a factor that differs from call to call.
WEIR = """
case "$*" in
*"--prefill 0"*) tests="decode:1:64" ;;
*) tests="prefill:1:0 decode:1:0 decode:4:0" ;;
esac
for t in $tests; do
    IFS=: read -r test batch depth <<EOT
$t
EOT
    echo '{"test": "'$test'", "tokens": 8, "batch": '$batch', "depth": '$depth',' \\
        '"tok_s": '$((60 * k))', "limit": 1000, "limit_fraction": 0.'$((50 + k))'}'
done
"""
LLAMA = """
case "$*" in
*"-d 64"*) echo '[{"n_prompt": 0, "n_gen": 8, "n_depth": 64, "avg_ts": 20}]' ;;
*) echo '['
   echo '  {"n_prompt": 32, "n_gen": 0, "n_depth": 0, "avg_ts": 20},'
   echo '  {"n_prompt": 0, "n_gen": 8, "n_depth": 0, "avg_ts": '$((10 * k))'}'
   echo ']' ;;
esac
"""
BATCHED = """
echo '{"pp": 1, "tg": 8, "pl": 4, "speed_tg": 30.0}'
echo '{"pp": 1, "tg": 8, "pl": 1, "speed_tg": 99999}'
"""
IK = """
case "$*" in *"-rtr 1"*) s=40 ;; *) s=15 ;; esac
echo 'noise {'
echo '[  '
echo '  {"n_prompt": 32, "n_gen": 0, "avg_ts": 30, "test": "pp32"},'
echo '  {"n_prompt": 0, "n_gen": 8, "avg_ts": '$s', "test": "tg8"},'
echo 'more noise'
echo '  {"n_prompt": 64, "n_gen": 8, "avg_ts": 10, "test": "tg8@pp64"}'
echo ']'
"""


class Bench:
    """A folder of pretended tools that log their turns, and compare.py run on them."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "log"
        for name, body in (("weir", WEIR), ("llama", LLAMA), ("batched", BATCHED), ("ik", IK)):
            self.tool(name, body)

    def tool(self, name, body):
        path = self.folder / name
        factors = "k=1; [ $n = 1 ] && k=3; [ $n = 2 ] && k=2"
        path.write_text(f"#!/bin/bash\necho {name} \"$*\" >>{self.log}\n"
                        f"n=$(grep -c '^{name} ' {self.log}); {factors}\n{body}")
        path.chmod(0o755)

    def argv(self, *more, peers=("llama", "batched", "ik"), models=("a.gguf",)):
        flags = {"llama": "--llama", "batched": "--batched-bench", "ik": "--ik"}
        argv = [sys.executable, ROOT / "bench/compare.py", "--weir", self.folder / "weir"]
        for p in peers:
            argv += [flags[p], self.folder / p]
        for m in models:
            argv += ["-m", f"models/{m}"]
        return [*map(str, argv), "--threads", "2", "--prefill", "32", "--decode", "8", "--depth",
                "0,64", "--batch", "1,4", *map(str, more)]

    def run(self, *more, **which):
        return subprocess.run(self.argv(*more, **which), capture_output=True, text=True, timeout=300,
                              check=False)

    def calls(self):
        return self.log.read_text().splitlines()


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def line(out, label):
    return next(x for x in out.splitlines() if x.startswith(label + "  ")).split()


def read(kind, file):
    found = [KINDS[kind].read(o) for o in objects((DATA / file).read_text())]
    return [(r.test, r.tok_s) for r in found if r]


def test_recorded_output_reads():
    assert read("llama-bench", "llama-bench.json") == [
        (Test("prefill", 1, 0), 907.003718), (Test("decode", 1, 0), 5.046142)]
    assert read("llama-bench", "llama-bench-depth.json") == [
        (Test("decode", 1, 32), 8.682175), (Test("decode", 1, 64), 116.982259)]
    assert [t for t, _ in read("ik llama-bench", "ik-llama-bench.json")] == [
        Test("prefill", 1, 0), Test("decode", 1, 0), Test("decode", 1, 32), Test("decode", 1, 64)]
    streams = read("llama-batched-bench", "llama-batched-bench.jsonl")
    assert [t for t, _ in streams] == [Test("decode", 2, 0), Test("decode", 8, 0)]


def test_calls_measure_nothing_in_vain():
    plan = Plan(2, 256, 32, [0, 1500], [1, 8, 32])
    calls = {k: [" ".join(c[1:]) for c in Tool(k, "x").commands(plan, "M")] for k in KINDS}
    assert "--prefill 256 --batch 1,8,32 --depth 0 " in calls["weir bench"][0]
    assert "--prefill 0 --batch 1 --depth 1500 " in calls["weir bench"][1]
    assert "-p 256 -n 32 -m M" in calls["llama-bench"][0] and "-d" not in calls["llama-bench"][0]
    assert "-p 0 -n 32 -d 1500" in calls["llama-bench"][1]
    assert "-p 256 -n 32 -gp 1500,32 " in calls["ik llama-bench"][0]
    assert "-npp 1 -ntg 32 -npl 8,32,1 -c 1056 " in calls["llama-batched-bench"][0]
    assert all("f16" in c for each in calls.values() for c in each)
    assert not Tool("llama-batched-bench", "x").commands(Plan(2, 256, 32, [0], [1]), "M")


def test_turns_alternate(bench):
    r = bench.run("--alternations", 3, peers=["llama", "batched"])
    assert r.returncode == 0, r.stderr
    turns = [c.split()[0] for c in bench.calls()]
    forth = ["weir"] * 2 + ["llama"] * 2 + ["batched"]
    assert turns == forth + forth[::-1] + forth


def test_ratios_are_medians_of_rounds(bench):
    """Rounds of 60, 120, 180 against 10, 60, 45 tokens/s: 6, 2 and 4 times as fast."""
    bench.tool("weir", WEIR.replace("$((60 * k))", "$((60 * (n / 2 + 1)))"))
    bench.tool("llama", LLAMA.replace("$((10 * k))", "$((n == 1 ? 10 : n == 3 ? 60 : 45))"))
    r = bench.run("--alternations", 3, peers=["llama"])
    assert r.returncode == 0, r.stderr
    got = line(r.stdout, "decode")
    assert got[1] == "120.0" and got[-3:] == ["45.0", "4.00", "(2.00..6.00)"]
    assert got[2:4] == ["51", "%"]  # the median of 53, 51 and 51


def test_table_and_best_mode(bench):
    r = bench.run("--alternations", 1, "--ik-args=-rtr 0", "--ik-args=-rtr 1")
    assert r.returncode == 0, r.stderr
    assert line(r.stdout, "tokens/s")[1:] == [
        "weir", "of", "limit", "llama.cpp", "ratio", "(min..max)", "ik_llama.cpp", "ratio",
        "(min..max)"]
    assert " 40.0 " in " ".join(line(r.stdout, "decode"))  # ik with -rtr 1
    assert "decode: ik llama-bench at its best with '-rtr 1'" in r.stdout
    streams = line(r.stdout, "decode, 4 streams")
    assert "30.0" in streams and streams[-2:] == ["-", "-"]  # ik has no test of streams
    assert "%" in streams and "99999" not in r.stdout
    assert line(r.stdout, "decode, depth 64")


def test_json_holds_every_sample_and_can_be_shown(bench):
    saved = bench.folder / "all.json"
    r = bench.run("--alternations", 2, "--json", saved, models=["a.gguf", "b.gguf"])
    assert r.returncode == 0, r.stderr
    o = json.loads(saved.read_text())
    n_results = 4 + 3 + 1 + 3
    assert len(o["samples"]) == 2 * 2 * n_results and o["failures"] == [] and o["stopped"] is None
    assert {s["model"] for s in o["samples"]} == {"models/a.gguf", "models/b.gguf"}
    assert o["plan"]["batches"] == [1, 4] and any("--prefill 32" in c for c in o["commands"])
    for s in o["samples"]:
        assert s["tok_s"] > 0 and (s["limit_fraction"] is not None) == (s["tool"] == "weir bench")
    again = subprocess.run([sys.executable, ROOT / "bench/compare.py", "--from", saved],
                           capture_output=True, text=True, check=False)
    assert again.returncode == 0 and again.stdout == r.stdout
    saved.write_text("{}")
    again = subprocess.run([sys.executable, ROOT / "bench/compare.py", "--from", saved],
                           capture_output=True, text=True, check=False)
    assert again.returncode == 2 and len(again.stderr.splitlines()) == 1


def test_a_peer_that_fails_is_a_dash(bench):
    bench.tool("ik", "echo broken at /some/where/ggml.c:12 >&2; exit 3")
    bench.tool("batched", "echo nothing of interest")
    (bench.folder / "llama").unlink()
    saved = bench.folder / "all.json"
    r = bench.run("--alternations", 2, "--json", saved)
    assert r.returncode == 0, r.stderr
    failed = [x for x in r.stderr.splitlines() if "failed" in x]
    assert len(failed) == 3
    assert any(x.endswith("exit status 3: broken at ggml.c:12") for x in failed)
    assert any("llama-batched-bench failed: printed no result" in x for x in failed)
    assert any("llama-bench failed: cannot run" in x for x in failed)
    assert line(r.stdout, "decode")[-4:] == ["-", "-", "-", "-"]
    assert [c.split()[0] for c in bench.calls()].count("ik") == 1
    assert len(json.loads(saved.read_text())["failures"]) == 3


def test_a_test_passed_over_is_said(bench):
    bench.tool("weir", "case \"$*\" in *'--prefill 0'*) exit 0 ;; esac\n" + WEIR)
    r = bench.run("--alternations", 2, peers=["llama"])
    assert r.returncode == 0, r.stderr
    assert r.stderr.count("weir bench: no result for decode, depth 64") == 1
    assert line(r.stdout, "decode, depth 64")[3:] == ["-", "-", "20.0", "-"]


def test_weir_failing_is_an_error_after_what_was_gathered(bench):
    bench.tool("weir", "[ $n -gt 2 ] && { echo no memory >&2; exit 1; }\n" + WEIR)
    r = bench.run("--alternations", 4, peers=["llama"])
    assert r.returncode == 1 and "weir bench: exit status 1: no memory" in r.stderr
    assert line(r.stdout, "decode")


def test_interruption_prints_what_was_gathered(bench):
    slow = f"[ $n -gt 2 ] && {{ touch {bench.folder}/slow; exec sleep 60; }}\n"
    bench.tool("llama", slow + LLAMA)
    saved = bench.folder / "all.json"
    p = subprocess.Popen(bench.argv("--json", saved, peers=["llama"]), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (bench.folder / "slow").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=300)
    assert p.returncode == 130 and "interrupted" in err and "Traceback" not in err
    assert line(out, "decode")
    assert json.loads(saved.read_text())["stopped"] == "interrupted"


@pytest.mark.parametrize("more", [["--batch", "0"], ["--depth", "x"], ["--alternations", "0"],
                                  ["--json", "/nonexistent/x"],
                                  ["--prefill", "0", "--decode", "0"]])
def test_wrong_use_is_2(bench, more):
    assert bench.run(*more).returncode == 2
    assert not bench.log.exists()


def test_folders_are_left_out_of_messages():
    assert last_line("x\n/a/b/ggml.c:12: GGML_ASSERT failed\n\n") == "ggml.c:12: GGML_ASSERT failed"
    assert last_line("") == "it said nothing"


def test_plot_without_matplotlib(bench):
    (bench.folder / "hide").mkdir()
    (bench.folder / "hide/sitecustomize.py").write_text(
        "import importlib.util as u\nf = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'matplotlib' else f(n, *a)\n")
    r = subprocess.run(bench.argv("--plot", bench.folder / "x.png"), capture_output=True, text=True,
                       env={**os.environ, "PYTHONPATH": str(bench.folder / "hide")}, check=False)
    assert r.returncode == 3 and "python3-matplotlib" in r.stderr and not r.stdout
    assert len(r.stderr.splitlines()) == 1 and not (bench.folder / "x.png").exists()


def test_plot(bench):
    pytest.importorskip("matplotlib")
    bench.tool("ik", "exit 1")
    picture = bench.folder / "x.png"
    r = bench.run("--alternations", 2, "--plot", picture, models=["a.gguf", "b.gguf"])
    assert r.returncode == 0, r.stderr
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10000
