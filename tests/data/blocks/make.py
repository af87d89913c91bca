"""Make the golden blocks beside this file: TYPE.blocks (as in a GGUF file) and TYPE.f32 (their values);
and grids.txt, a hash of the values of each grid of the IQ formats.

Needs the Python packages numpy and gguf, whose dequantisation is an implementation independent of
Weir's. (Q1_0 and Q2_0, which it does not read, are read here.) Blocks are random bytes under scales
that cover f16, subnormals included, then a few blocks that were quantised from normally distributed
values.

    python3 make.py
"""

import pathlib

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf import quants
from gguf.quants import dequantize, quantize

SCALES = {  # where a block's f16 scales are
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.MXFP4: [],
    Type.IQ1_S: [0], Type.IQ1_M: [], Type.IQ2_XXS: [0], Type.IQ2_XS: [0], Type.IQ2_S: [0],
    Type.IQ3_XXS: [0], Type.IQ3_S: [0], Type.TQ1_0: [52], Type.TQ2_0: [64], Type.Q1_0: [0],
    Type.Q2_0: [0], Type.NVFP4: [],
}
HERE = pathlib.Path(__file__).parent
N_RANDOM = 6


def scales_of(rng):
    scale = rng.normal(size=N_RANDOM) * 10.0 ** rng.integers(-6, 2, N_RANDOM)
    return scale.astype(np.float16)[:, None].view(np.uint8)


def blocks_of(kind, rng):
    n_values, n_bytes = GGML_QUANT_SIZES[kind]
    if kind in SCALES:
        raw = rng.integers(0, 256, (N_RANDOM, n_bytes), dtype=np.uint8)
        for at in SCALES[kind]:
            raw[:, at : at + 2] = scales_of(rng)
        if kind == Type.IQ1_M:  # a nibble of the scale on top of each of the last four words
            d = scales_of(rng).view("<u2")
            words = raw[:, 48:].copy().view("<u2") & 0xFFF
            raw[:, 48:] = (words | (d >> [0, 4, 8, 12] & 15) << 12).astype("<u2").view(np.uint8)
        if kind == Type.MXFP4:
            raw[:, 0] = [0, 1, 2, 120, 127, 255]  # exponents, subnormal ones included
        if kind == Type.NVFP4:
            raw[:, 0] = [0, 1, 7, 8, 126, 127]  # 0, subnormal, NaN
    else:
        raw = np.zeros((0, n_bytes), np.uint8)
    try:
        values = rng.normal(size=(2, max(n_values, 32))).astype(np.float32)
        raw = np.concatenate([raw, quantize(values, kind).reshape(-1, n_bytes)])
    except NotImplementedError:
        pass  # the package reads the K types but does not write them
    return raw


def values_of(raw, kind):
    if kind not in (Type.Q1_0, Type.Q2_0):
        return dequantize(raw, kind)
    bits = np.unpackbits(raw[:, 2:], axis=1, bitorder="little").astype(np.float32)
    numbers = bits * 2 - 1 if kind == Type.Q1_0 else bits[:, 0::2] + 2 * bits[:, 1::2] - 1
    return raw[:, :2].copy().view("<f2").astype(np.float32) * numbers


def fnv1a(data):
    """A hash that a test can have in three lines."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


for kind in (Type.F16, Type.BF16, *SCALES):
    raw = blocks_of(kind, np.random.default_rng(int(kind)))
    (HERE / f"{kind.name}.blocks").write_bytes(raw.tobytes())
    (HERE / f"{kind.name}.f32").write_bytes(values_of(raw, kind).astype("<f4").tobytes())

lines = []
for name in ("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"):
    book = getattr(quants, name)
    book.init_grid()
    values = book.grid.reshape(-1, book.grid_shape[1])  # point by point, as signed bytes
    lines.append(f"{name} {values.shape[0]} {values.shape[1]} "
                 f"{fnv1a(values.astype(np.int8).tobytes()):016x}\n")
(HERE / "grids.txt").write_text("".join(lines))
