#!/usr/bin/env python3
"""The exact logits of a llama model in a format of blocks: those of what the blocks mean.

Usage: make_quantised.py MODEL.gguf [LLAMA_CPP.logits]
needs numpy and the gguf package; no test needs it

Writes MODEL.logits (float32 [rows, n_vocab]) and MODEL.json (prompt, rows, greedy tokens and their
margins) beside the model, from its tensors as the gguf package dequantises them and the float64 pass
of forward.py. With the same rows of llama.cpp's logits the json says how far these are off
(normalised mean square error). The models of tests/data/golden/grids were made of
tests/data/golden/quantised/llama.F16.gguf by

    llama-quantize --imatrix ONES llama.F16.gguf llama.TYPE.gguf TYPE

where ONES holds 1 for each input of each matrix, as these types ask for some importance matrix.
"""
import json
import pathlib
import sys

import gguf
import numpy as np
from gguf import quants

from forward import forward
from make_models import N_GREEDY, ROWS


def config_of(reader):
    def get(key):
        return reader.fields[f"llama.{key}"].contents()

    heads = get("attention.head_count")
    return dict(arch="llama", embd=get("embedding_length"), heads=heads,
                heads_kv=get("attention.head_count_kv"), dim=get("embedding_length") // heads,
                ff=get("feed_forward_length"), layers=get("block_count"),
                base=get("rope.freq_base"), eps=get("attention.layer_norm_rms_epsilon"))


def main():
    path = pathlib.Path(sys.argv[1])
    reader = gguf.GGUFReader(path)
    c = config_of(reader)
    t = {x.name: quants.dequantize(x.data, x.tensor_type) for x in reader.tensors}
    ids = json.loads((path.parent.parent / "quantised/llama.F16.json").read_text())["prompt"]
    logits = forward(c, t, ids)[ROWS]
    logits.astype(np.float32).tofile(path.with_suffix(".logits"))
    greedy, margins, text = [], [], list(ids)
    for _ in range(N_GREEDY):
        last = forward(c, t, text)[-1]
        best = np.sort(last)[::-1]
        greedy.append(int(last.argmax()))
        margins.append(round(float(best[0] - best[1]), 6))
        text.append(greedy[-1])
    about = {"prompt": ids, "logit_rows": ROWS, "greedy": greedy, "top1_minus_top2": margins}
    if len(sys.argv) > 2:
        other = np.fromfile(sys.argv[2], np.float32).reshape(logits.shape)
        about["nmse_llama_cpp"] = float(((other - logits) ** 2).sum() / (logits ** 2).sum())
    path.with_suffix(".json").write_text(json.dumps(about))
    print(path.stem, about.get("nmse_llama_cpp"))


main()
