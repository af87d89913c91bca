"""Ids of whole vocabularies of released models, where the folder of them is at hand."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build/weir"))
FIXTURES = os.environ.get("WEIR_FIXTURES")
SEPARATOR = b"\n__ggml_vocab_test__\n"


@pytest.mark.skipif(not FIXTURES, reason="WEIR_FIXTURES does not name a folder of vocabularies")
@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_ids_agree(name):
    folder = pathlib.Path(FIXTURES) / "tokenizers"
    texts = (folder / f"{name}.inp").read_bytes().split(SEPARATOR)
    want = (folder / f"{name}.out").read_text().split("\n")[: len(texts)]
    r = subprocess.run([WEIR, "tokenize", "-m", folder / f"{name}.gguf", "--null"],
                       input=b"\0".join(texts), capture_output=True, timeout=300)
    assert r.returncode == 0, r.stderr
    got = r.stdout.decode().split("\n")[: len(texts)]
    assert [line.split() for line in got] == [line.split() for line in want]
