#!/usr/bin/env python3
"""Tiny random encoders with what they make of a text, in plain Python.

Usage: make_encoders.py FOLDER     needs nothing; tests/data/golden/encoders is what it wrote

Writes NAME.f32.gguf, NAME.f32.json (`prompt`, `second`: where its second text begins) and
NAME.f32.hidden (float32 [prompt, n_embd]) of each model of MODELS; of those with a head also
NAME.f32.scores (float32 [labels], of the first position). `forward` is written from the papers
(Devlin et al. 2018; Nussbaum et al. 2024), in double, and shares nothing with the server.
"""
import array
import json
import math
import pathlib
import random
import struct
import sys

EMBD, HEADS, FF, LAYERS, CTX, EPS = 40, 5, 56, 2, 96, 1e-12
DIM = EMBD // HEADS
N_PROMPT, SECOND = 70, 31
CLS, SEP = 2, 3
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["the", "river", "runs", "deep", "stone", "light", ".", ",", "?"]
TOKENS = (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["\u2581" + w for w in WORDS]
          + ["\u2581" + c for c in LETTERS] + list(LETTERS))

MODELS = {
    "bert": dict(arch="bert", pooling=2, labels=0),
    "bert-rank": dict(arch="bert", pooling=4, labels=1),
    "nomic-bert": dict(arch="nomic-bert", pooling=1, labels=0, base=1000.0),
    "nomic-bert-moe": dict(arch="nomic-bert-moe", pooling=1, labels=0, base=1000.0, fused=True,
                           biased=True, experts=4, used=2, keys={"moe_every_n_layers": 2}),
    "jina-bert-v2": dict(arch="jina-bert-v2", pooling=1, labels=0, biased=True, gate="gelu", alibi=8.0),
    # jina-embeddings-v2-base-code
    "jina-bert-v2-code": dict(arch="jina-bert-v2", pooling=1, labels=0, biased=True, gate="gelu",
                              alibi=8.0, normed=True),
    # jina-reranker-v1: a head of one matrix
    "jina-bert-v2-rank": dict(arch="jina-bert-v2", pooling=4, labels=1, biased=True, gate="gelu",
                              alibi=8.0, alone=True),
    "jina-bert-v3": dict(arch="jina-bert-v3", pooling=1, labels=0, base=20000.0, fused=True, biased=True),
}


# --- the model ---------------------------------------------------------------------------------

def matrix(rng, rows, cols, scale):
    """As float32 has them, so that file and reference agree to the bit."""
    return [list(array.array("f", (rng.gauss(0, scale) for _ in range(cols)))) for _ in range(rows)]


def gate_of(m):
    return "silu" if m["arch"] == "nomic-bert" else m.get("gate")


def is_expert_layer(m, i):
    return "experts" in m and i % 2 == 1


def make_weights(m, rng):
    """Name: rows; a vector is one row."""
    w = {}

    def add(name, rows, cols, scale=None):
        w[name + ".weight"] = matrix(rng, rows, cols, scale or cols ** -0.5)

    def add_bias(name, n, scale=0.3):
        w[name + ".bias"] = matrix(rng, 1, n, scale)

    def add_norm(name):
        w[name + ".weight"] = [[1 + x for x in matrix(rng, 1, EMBD, 0.2)[0]]]
        w[name + ".weight"] = [list(array.array("f", w[name + ".weight"][0]))]
        add_bias(name, EMBD)

    bert, biased = m["arch"] == "bert", m["arch"] == "bert" or m.get("biased")
    add("token_embd", len(TOKENS), EMBD, 1.0)
    add("token_types", 2, EMBD, 1.0)
    if bert:
        add("position_embd", CTX, EMBD, 1.0)
    add_norm("token_embd_norm")
    for i in range(LAYERS):
        at = f"blk.{i}."
        if "base" in m:
            add(at + "attn_qkv", 3 * EMBD, EMBD, 2 * EMBD ** -0.5)
            if biased:
                add_bias(at + "attn_qkv", 3 * EMBD)
        else:
            for name in ("attn_q", "attn_k", "attn_v"):
                add(at + name, EMBD, EMBD, 2 * EMBD ** -0.5)
                add_bias(at + name, EMBD)
        if m.get("normed"):
            for name in ("attn_q_norm", "attn_k_norm", "attn_norm_2"):
                add_norm(at + name)
        if gate_of(m):
            add(at + "ffn_gate", FF, EMBD)
        add(at + "attn_output", EMBD, EMBD)
        if is_expert_layer(m, i):
            add(at + "ffn_gate_inp", m["experts"], EMBD)
            for e in range(m["experts"]): # below each other in the file
                add(f"{at}ffn_up_exps.{e}", FF, EMBD)
                add(f"{at}ffn_down_exps.{e}", EMBD, FF)
        else:
            add(at + "ffn_up", FF, EMBD)
            add(at + "ffn_down", EMBD, FF)
        if biased:
            add_bias(at + "attn_output", EMBD)
        if biased and not is_expert_layer(m, i):
            if not gate_of(m):
                add_bias(at + "ffn_up", FF)
            add_bias(at + "ffn_down", EMBD)
        add_norm(at + "attn_output_norm")
        add_norm(at + "layer_output_norm")
    if m["labels"]:
        add("cls", 1 if m.get("alone") else EMBD, EMBD)
        add_bias("cls", 1 if m.get("alone") else EMBD)
    if m["labels"] and not m.get("alone"):
        add("cls.output", m["labels"], EMBD)
        add_bias("cls.output", m["labels"])
    return w


def times(rows, x, bias=None):
    y = [sum(a * b for a, b in zip(row, x)) for row in rows]
    return [a + b for a, b in zip(y, bias[0])] if bias else y


def plus(*xs):
    return [sum(x) for x in zip(*xs)]


def layer_norm(x, w, name):
    mean = sum(x) / len(x)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + EPS)
    return [(v - mean) / deviation * a + b
            for v, a, b in zip(x, w[name + ".weight"][0], w[name + ".bias"][0])]


def rotate(x, pos, base):
    """Each head's dims i and i + DIM/2 by pos * base^(-2i/DIM)."""
    y = list(x)
    for h in range(0, EMBD, DIM):
        for i in range(DIM // 2):
            angle = pos * base ** (-2 * i / DIM)
            a, b = x[h + i], x[h + i + DIM // 2]
            y[h + i] = a * math.cos(angle) - b * math.sin(angle)
            y[h + i + DIM // 2] = a * math.sin(angle) + b * math.cos(angle)
    return y


def attention(q, k, v, alibi=0):
    """Every row sees every row, with ALiBi the less the further away."""
    heads, power = EMBD // DIM, 1
    while 2 * power <= heads:
        power *= 2
    slopes = [2 ** (-alibi * (h + 1 if h < power else h - power + 0.5) / power) if alibi else 0
              for h in range(heads)]
    out = [[0.0] * EMBD for _ in q]
    for r, row in enumerate(q):
        for h in range(0, EMBD, DIM):
            s = [sum(a * b for a, b in zip(row[h:h + DIM], key[h:h + DIM])) / math.sqrt(DIM)
                 - slopes[h // DIM] * abs(r - p) for p, key in enumerate(k)]
            top = max(s)
            e = [math.exp(x - top) for x in s]
            for d in range(h, h + DIM):
                out[r][d] = sum(a * value[d] for a, value in zip(e, v)) / sum(e)
    return out


def project(m, w, at, xs):
    """q, k, v of all rows."""
    if "base" not in m:
        q, k, v = ([times(w[f"{at}attn_{c}.weight"], x, w[f"{at}attn_{c}.bias"]) for x in xs]
                   for c in "qkv")
        if m.get("normed"):
            q = [layer_norm(x, w, at + "attn_q_norm") for x in q]
            k = [layer_norm(x, w, at + "attn_k_norm") for x in k]
        return q, k, v
    qkv = [times(w[at + "attn_qkv.weight"], x, w.get(at + "attn_qkv.bias")) for x in xs]
    q, k, v = [[row[i * EMBD:(i + 1) * EMBD] for row in qkv] for i in range(3)]
    return ([rotate(x, p, m["base"]) for p, x in enumerate(q)],
            [rotate(x, p, m["base"]) for p, x in enumerate(k)], v)


def gelu(v):
    return 0.5 * v * math.erfc(-v / math.sqrt(2))


def experts(m, w, at, x):
    """The best of all, each by its share of all."""
    e = [math.exp(s) for s in times(w[at + "ffn_gate_inp.weight"], x)]
    best = sorted(range(len(e)), key=lambda i: -e[i])[:m["used"]]
    outs = [times(w[f"{at}ffn_down_exps.{i}.weight"],
                  [gelu(v) for v in times(w[f"{at}ffn_up_exps.{i}.weight"], x)]) for i in best]
    return plus(*[[e[i] / sum(e) * v for v in out] for i, out in zip(best, outs)])


def feed_forward(m, w, at, x):
    if at + "ffn_gate_inp.weight" in w:
        return experts(m, w, at, x)
    up = times(w[at + "ffn_up.weight"], x, w.get(at + "ffn_up.bias"))
    if not gate_of(m):
        mid = [gelu(v) for v in up]
    else:
        gate = times(w[at + "ffn_gate.weight"], x)
        act = gelu if gate_of(m) == "gelu" else lambda g: g / (1 + math.exp(-g))
        mid = [act(g) * u for g, u in zip(gate, up)]
    return times(w[at + "ffn_down.weight"], mid, w.get(at + "ffn_down.bias"))


def forward(m, w, ids, second=0):
    """The final hidden states; from position `second` on the text is of the second type."""
    xs = []
    for p, t in enumerate(ids):
        x = plus(w["token_embd.weight"][t], w["token_types.weight"][int(0 < second <= p)])
        if m["arch"] == "bert":
            x = plus(x, w["position_embd.weight"][p])
        xs.append(layer_norm(x, w, "token_embd_norm"))
    for i in range(LAYERS):
        at = f"blk.{i}."
        found = attention(*project(m, w, at, xs), m.get("alibi", 0))
        for r, x in enumerate(xs):
            out = times(w[at + "attn_output.weight"], found[r], w.get(at + "attn_output.bias"))
            y = layer_norm(plus(x, out), w, at + "attn_output_norm")
            x = layer_norm(plus(x, y), w, at + "attn_norm_2") if m.get("normed") else y
            xs[r] = layer_norm(plus(x, feed_forward(m, w, at, x)), w, at + "layer_output_norm")
    return xs


def scores(w, x):
    """What the head makes of a hidden state."""
    mid = [math.tanh(v) for v in times(w["cls.weight"], x, w["cls.bias"])]
    if "cls.output.weight" not in w:
        return mid
    return times(w["cls.output.weight"], mid, w["cls.output.bias"])


# --- texts -------------------------------------------------------------------------------------

def tokenize(text):
    """Ids of lower-case words and letters, longest match first, without what stands around them."""
    ids = []
    for word in text.replace(".", " . ").replace(",", " , ").replace("?", " ? ").split():
        at = "\u2581" + word
        while at:
            n = max(n for n in range(1, len(at) + 1) if at[:n] in TOKENS)
            ids.append(TOKENS.index(at[:n]))
            at = at[n:]
    return ids


def prompt():
    rng = random.Random(7)
    ids = [CLS] + [rng.randrange(5, len(TOKENS)) for _ in range(N_PROMPT - 2)] + [SEP]
    ids[SECOND - 1] = SEP
    return ids


# --- the file ----------------------------------------------------------------------------------

def string(s):
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, value):
    head = string(key)
    if isinstance(value, bool):
        return head + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return head + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return head + struct.pack("<If", 6, value)
    if isinstance(value, str):
        return head + struct.pack("<I", 8) + string(value)
    if isinstance(value[0], str):
        return head + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(string, value))
    return head + struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def metadata(m, changed):
    a = m["arch"] + "."
    keys = {"general.architecture": m["arch"], "general.name": "tiny " + m["arch"],
            a + "block_count": LAYERS, a + "context_length": CTX, a + "embedding_length": EMBD,
            a + "feed_forward_length": FF, a + "attention.head_count": HEADS,
            a + "attention.layer_norm_epsilon": EPS, a + "attention.causal": False,
            a + "pooling_type": m["pooling"],
            "tokenizer.ggml.model": "bert", "tokenizer.ggml.pre": "default",
            "tokenizer.ggml.tokens": TOKENS,
            "tokenizer.ggml.token_type": [3, 2, 3, 3, 3] + [1] * (len(TOKENS) - 5),
            "tokenizer.ggml.token_type_count": 2, "tokenizer.ggml.unknown_token_id": 1,
            "tokenizer.ggml.bos_token_id": CLS, "tokenizer.ggml.eos_token_id": SEP,
            "tokenizer.ggml.seperator_token_id": SEP, "tokenizer.ggml.padding_token_id": 0,
            "tokenizer.ggml.mask_token_id": 4}
    if "base" in m:
        keys[a + "rope.freq_base"] = m["base"]
    if "experts" in m:
        keys.update({a + "expert_count": m["experts"], a + "expert_used_count": m["used"]})
    keys.update({a + k: v for k, v in m.get("keys", {}).items()})
    keys.update(changed)
    return {k: v for k, v in keys.items() if v is not None}


def write_gguf(path, m, w, **changed):
    """`changed`: keys that are other than usual, dots written as two underscores; None: left out."""
    keys = metadata(m, {k.replace("__", "."): v for k, v in changed.items()})
    out, data, infos = b"", b"", b""
    for name, rows, *depth in stacked(w):
        shape = [len(rows[0])] + ([len(rows) // (depth or [1])[0]] if not vector(name) else []) + depth
        infos += string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        infos += struct.pack("<IQ", 0, len(data))
        data += b"".join(array.array("f", row).tobytes() for row in rows)
        data += bytes(-len(data) % 32)
    out = struct.pack("<4sIQQ", b"GGUF", 3, len(list(stacked(w))), len(keys))
    out += b"".join(entry(k, v) for k, v in keys.items()) + infos
    path.write_bytes(out + bytes(-len(out) % 32) + data)


def stacked(w):
    """Tensors as the file has them: (name, rows), or of experts (name, rows, how many)."""
    for name, rows in w.items():
        stem, _, which = name.removesuffix(".weight").rpartition(".")
        if not which.isdigit():
            yield name, rows
        elif which == "0":
            each = [x for x in w if x.startswith(stem + ".")]
            yield stem + ".weight", [row for x in each for row in w[x]], len(each)


def vector(name):
    return name.endswith((".bias", "_norm.weight", "_norm_2.weight"))


def floats(path, values):
    path.write_bytes(array.array("f", values).tobytes())


def make(name):
    """(model, weights), the same every time."""
    m = MODELS[name]
    return m, make_weights(m, random.Random("encoder " + name))


def main():
    folder = pathlib.Path(sys.argv[1])
    for name in MODELS:
        m, w = make(name)
        write_gguf(folder / f"{name}.f32.gguf", m, w)
        second = SECOND if m["labels"] else 0
        xs = forward(m, w, prompt(), second)
        floats(folder / f"{name}.f32.hidden", [v for x in xs for v in x])
        if m["labels"]:
            floats(folder / f"{name}.f32.scores", scores(w, xs[0]))
        (folder / f"{name}.f32.json").write_text(
            json.dumps({"prompt": prompt(), "second": second}) + "\n")


if __name__ == "__main__":
    main()
