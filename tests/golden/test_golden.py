"""Logits of small models against an independent implementation.

data/golden/architectures, variants, families, recurrent: f32 models; logits computed in f32 elsewhere and
confirmed by a float64 forward pass: NMSE at most 1e-9, greedy choices equal wherever their margin
exceeds 1e-3.
data/golden/quantised: one model in each block format; logits of the dequantised weights, the exact
answer. `nmse_llama_cpp` says how far llama.cpp lands from it: at most 1.1 times that is allowed.
data/golden/grids: the same in the mixtures of IQ1, IQ2, IQ3 and TQ that a quantiser writes
(make_quantised.py).
"""
import array
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build/weir"))
GOLDEN = ROOT / "tests/data/golden"
# encoders give no logits: data/golden/encoders is for the unit tests of model/ and engine/
MODELS = sorted(m for m in GOLDEN.glob("*/*.gguf") if m.parent.name != "encoders")


# the CUDA backend over its emulation (tests/cuda), where it was built; or a real one
PLUGIN = pathlib.Path(os.environ.get(
    "WEIR_CUDA_PLUGIN", pathlib.Path(WEIR).parent / "tests/cuda/libweir_cuda_emulated.so"))


def run_logits(model, want, out, isa, threads, *options, **env):
    ids = ",".join(map(str, want["prompt"]))
    rows = ",".join(map(str, want["logit_rows"]))
    r = subprocess.run(
        [WEIR, "logits", "-m", model, "--tokens", ids, "--rows", rows, "--out", out, "--greedy",
         str(len(want["greedy"])), "--kv-type", "f32", "--threads", str(threads), *options],
        capture_output=True, text=True, env={**os.environ, "WEIR_ISA": isa, **env}, timeout=300)
    assert r.returncode == 0, r.stderr
    return array.array("f", out.read_bytes()), json.loads(r.stdout)["greedy"]


def check(model, want, got, greedy):
    reference = array.array("f", model.with_suffix(".logits").read_bytes())
    assert len(got) == len(reference)
    error = sum((x - y) ** 2 for x, y in zip(got, reference)) / sum(y * y for y in reference)
    exact = "nmse_llama_cpp" not in want
    assert error <= (1e-9 if exact else 1.1 * want["nmse_llama_cpp"])
    for i, (x, y, margin) in enumerate(zip(greedy, want["greedy"], want["top1_minus_top2"])):
        if x != y:  # from here on the texts differ: it must have been close
            assert margin <= (1e-3 if exact else 0.5), f"greedy differs at {i}"
            break


@pytest.mark.parametrize("isa", ["reference", "avx2", "avx-vnni", "avx512", "avx512-bf16", "amx"])
@pytest.mark.parametrize("model", MODELS, ids=lambda p: p.stem)
def test_logits(model, isa, tmp_path):
    want = json.loads(model.with_suffix(".json").read_text())
    check(model, want, *run_logits(model, want, tmp_path / "out", isa, 2))


# Of the others tests/cuda/test_model.c compares the same logits.
THERE = (ROOT / "tests/cuda/test_model.c").read_text()
CUDA_MODELS = [m for m in MODELS
               if f'"{m.parent.name}/{m.stem.removesuffix(".f32")}"' not in THERE
               and "heads-of-20" not in m.stem] # it takes multiples of 8

# With every access checked an emulated model takes ten times as long; tests/cuda/test_model.c then has
# one for each op, and here is enough to see the plugin in the program.
CHECKED = pathlib.Path(WEIR).is_file() and b"libasan.so" in pathlib.Path(WEIR).read_bytes()


@pytest.mark.skipif(not PLUGIN.is_file(), reason=f"{PLUGIN} was not built: no C++ compiler")
@pytest.mark.parametrize("model", CUDA_MODELS[::13] if CHECKED else CUDA_MODELS,
                         ids=lambda p: p.stem)
def test_logits_of_cuda(model, tmp_path):
    """The whole program with the plugin; each model meets other orders of threads and streams."""
    want = json.loads(model.with_suffix(".json").read_text())
    seed = str(MODELS.index(model) % 4)
    check(model, want, *run_logits(model, want, tmp_path / "out", "", 1, "--device", "cuda",
                                   WEIR_CUDA_PLUGIN=str(PLUGIN), WEIR_EMU_SEED=seed))


@pytest.mark.skipif(not PLUGIN.is_file(), reason=f"{PLUGIN} was not built: no C++ compiler")
def test_auto_is_the_cpu_where_the_device_has_no_room():
    model = GOLDEN / "grids/llama.IQ2_M.gguf"
    for device in ("cuda", "auto"):
        r = subprocess.run(
            [WEIR, "logits", "-m", model, "--tokens", "1,2", "--rows", "1", "--out", "/dev/null",
             "--device", device], capture_output=True, text=True, timeout=300,
            env={**os.environ, "WEIR_CUDA_PLUGIN": str(PLUGIN), "WEIR_EMU_MEMORY_MIB": "1"})
        assert r.returncode == (1 if device == "cuda" else 0), r.stderr
        assert ("GiB of weights" in r.stderr) == (device == "cuda")


@pytest.mark.parametrize("model", MODELS, ids=lambda p: p.stem)
def test_threads_do_not_change_a_bit(model, tmp_path):
    want = json.loads(model.with_suffix(".json").read_text())
    one = run_logits(model, want, tmp_path / "one", "avx512", 1)
    three = run_logits(model, want, tmp_path / "three", "avx512", 3)
    assert one[0].tobytes() == three[0].tobytes() and one[1] == three[1]


def test_context_chooses_the_factors_of_long_rope(tmp_path):
    """The model was first trained on 32 positions; its logits are those of the long factors."""
    model = GOLDEN / "variants/phi3-long.f32.gguf"
    want = json.loads(model.with_suffix(".json").read_text())
    usual = run_logits(model, want, tmp_path / "usual", "", 1)
    for context, same in (("33", True), ("32", False)):
        got = run_logits(model, want, tmp_path / context, "", 1, "--context", context)
        assert (got == usual) == same, context
