"""Make the golden blocks beside this file: TYPE.blocks (as in a GGUF file) and TYPE.f32 (their values).

Needs the Python packages numpy and gguf, whose dequantisation is an implementation independent of
Weir's. Blocks are random bytes under scales that cover f16, subnormals included, then a few blocks
that were quantised from normally distributed values.

    python3 make.py
"""

import pathlib

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

SCALES = {  # where a block's f16 scales are
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.MXFP4: [],
}
HERE = pathlib.Path(__file__).parent
N_RANDOM = 6


def blocks_of(kind, rng):
    n_values, n_bytes = GGML_QUANT_SIZES[kind]
    if kind in SCALES:
        raw = rng.integers(0, 256, (N_RANDOM, n_bytes), dtype=np.uint8)
        for at in SCALES[kind]:
            scale = rng.normal(size=N_RANDOM) * 10.0 ** rng.integers(-6, 2, N_RANDOM)
            raw[:, at : at + 2] = scale.astype(np.float16)[:, None].view(np.uint8)
        if kind == Type.MXFP4:
            raw[:, 0] = [0, 1, 2, 120, 127, 255]  # exponents, subnormal ones included
    else:
        raw = np.zeros((0, n_bytes), np.uint8)
    try:
        values = rng.normal(size=(2, max(n_values, 32))).astype(np.float32)
        raw = np.concatenate([raw, quantize(values, kind).reshape(-1, n_bytes)])
    except NotImplementedError:
        pass  # the package reads the K types but does not write them
    return raw


for kind in (Type.F16, Type.BF16, *SCALES):
    raw = blocks_of(kind, np.random.default_rng(int(kind)))
    (HERE / f"{kind.name}.blocks").write_bytes(raw.tobytes())
    (HERE / f"{kind.name}.f32").write_bytes(dequantize(raw, kind).astype("<f4").tobytes())
