"""A complete model of a few kilobytes, whole or with keys and tensors set or dropped; and layers from
which those of other architectures are put together (tiny_attending.py, tiny_recurrent.py).

For the seeds of the model fuzzer, and for tests that hand damaged files to the program.
"""

import random
import struct

from make_corpus_gguf import BOOL, F32, I32, STRING, U32, array, scalar, string

TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
            "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
N_EMBD, N_HEAD, N_KV, HEAD, N_FF, N_LAYER = 16, 2, 1, 8, 16, 1
TOKENS = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + ["\u2581", "a", "b", "ab"]
# 2: unknown, 3: control, 6: a byte, 1: text
TYPES = [2, 3, 3] + [6] * 256 + [1] * 4
N_VOCAB = len(TOKENS)
LN = "attention.layer_norm_epsilon"
DENSE = [f"blk.0.ffn_{n}.weight" for n in ("gate", "up", "down")]


def keys(arch="llama"):
    """name -> (kind, value); a list is an array."""
    return {
        "general.architecture": (STRING, arch),
        "general.name": (STRING, "tiny"),
        f"{arch}.block_count": (U32, N_LAYER),
        f"{arch}.context_length": (U32, 64),
        f"{arch}.embedding_length": (U32, N_EMBD),
        f"{arch}.feed_forward_length": (U32, N_FF),
        f"{arch}.attention.head_count": (U32, N_HEAD),
        f"{arch}.attention.head_count_kv": (U32, N_KV),
        f"{arch}.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        f"{arch}.rope.freq_base": (F32, 10000.0),
        f"{arch}.rope.dimension_count": (U32, HEAD),
        "tokenizer.ggml.model": (STRING, "llama"),
        "tokenizer.ggml.tokens": (STRING, list(TOKENS)),
        "tokenizer.ggml.scores": (F32, [-float(i) for i in range(N_VOCAB)]),
        "tokenizer.ggml.token_type": (I32, list(TYPES)),
        "tokenizer.ggml.bos_token_id": (U32, 1),
        "tokenizer.ggml.eos_token_id": (U32, 2),
        "tokenizer.ggml.add_bos_token": (BOOL, 1),
        "tokenizer.chat_template": (STRING, TEMPLATE),
    }


def tensors(arch="llama"):
    """name -> (type, shape)."""
    q, kv = N_HEAD * HEAD, N_KV * HEAD
    all_of = {"token_embd.weight": (0, (N_EMBD, N_VOCAB)), "output_norm.weight": (0, (N_EMBD,))}
    for i in range(N_LAYER):
        layer = {"attn_norm.weight": (N_EMBD,), "attn_q.weight": (N_EMBD, q),
                 "attn_k.weight": (N_EMBD, kv), "attn_v.weight": (N_EMBD, kv),
                 "attn_output.weight": (q, N_EMBD), "ffn_norm.weight": (N_EMBD,),
                 "ffn_gate.weight": (N_EMBD, N_FF), "ffn_up.weight": (N_EMBD, N_FF),
                 "ffn_down.weight": (N_FF, N_EMBD)}
        if arch == "qwen2":
            layer |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        if arch in ("qwen3", "qwen3vl"):
            layer |= {"attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)}
        all_of |= {f"blk.{i}.{name}": (0, shape) for name, shape in layer.items()}
    return all_of


def size_of(kind, shape):
    n = 1
    for d in shape:
        n *= d
    return n // 64 * 36 if kind == 40 else n * {0: 4, 1: 2, 30: 2}[kind]


def data_of(name, kind, shape):
    """Small weights, the same each time; a tensor's do not depend on the others."""
    n = size_of(kind, shape)
    if kind != 0:
        return bytes(n)
    rng = random.Random(name)
    ones = "norm" in name or "freqs" in name
    return b"".join(struct.pack("<f", 1.0 if ones else rng.uniform(-0.3, 0.3)) for _ in range(n // 4))


def encode_key(name, kind, value):
    return array(name, kind, value) if isinstance(value, list) else scalar(name, kind, value)


def write(keys, tensors, alignment=32):
    """The bytes of a file; what is in `tensors` is written as it is, with data that fit it."""
    infos, data = b"", b""
    for name, (kind, shape) in tensors.items():
        data += bytes(-len(data) % alignment)
        infos += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        data += data_of(name, kind, shape)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(encode_key(name, *v) for name, v in keys.items()) + infos
    return head + bytes(-len(head) % alignment) + data


def model(arch="llama", set_keys=(), drop=(), set_tensors=()):
    """A model with some keys and tensors set to something else, or dropped."""
    k = {**keys(arch), **dict(set_keys)}
    t = {**tensors(arch), **dict(set_tensors)}
    return write({n: v for n, v in k.items() if n not in drop},
                 {n: v for n, v in t.items() if n not in drop})


def split(arch="llama", n_parts=3):
    """The same model in several files' bytes, by name."""
    k, t = keys(arch), list(tensors(arch).items())
    files = {}
    for no in range(n_parts):
        own = dict(k) if no == 0 else {}
        own |= {"split.no": (U32, no), "split.count": (U32, n_parts),
                "split.tensors.count": (I32, len(t))}
        part = t[no * len(t) // n_parts:(no + 1) * len(t) // n_parts]
        files[f"tiny-{no + 1:05}-of-{n_parts:05}.gguf"] = write(own, dict(part))
    return files


def small(arch, **more):
    """For the fuzzer: the fewer bytes, the better it guesses. Without a tokenizer."""
    own = {"token_embd.weight": (0, (N_EMBD, 4)), **dict(more.pop("set_tensors", {}))}
    drop = [n for n in keys(arch) if n.startswith("tokenizer")] + list(more.pop("drop", []))
    return model(arch, drop=drop, set_tensors=own, **more)


def bare_model(arch, set_keys, tensors, drop=()):
    """Of these tensors alone."""
    return small(arch, set_keys=set_keys, drop=[*(f"blk.0.{n}.weight" for n in (
        "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up",
        "ffn_down") if f"blk.0.{n}.weight" not in tensors), *drop], set_tensors=tensors)


def layer_of(i, more):
    return {f"blk.{i}.{n}": (0, s) for n, s in {"attn_norm.weight": (N_EMBD,), **more}.items()}


def heads_of(i, q=N_HEAD * HEAD):
    """An attending layer with norms by head, and what stands behind any layer."""
    return layer_of(i, {"attn_q.weight": (N_EMBD, q), "attn_k.weight": (N_EMBD, HEAD),
                        "attn_v.weight": (N_EMBD, HEAD), "attn_output.weight": (16, N_EMBD),
                        "attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)})


def dense_of(i, norm="ffn_norm"):
    return {f"blk.{i}.{n}.weight": (0, s) for n, s in {
        norm: (N_EMBD,), "ffn_gate": (N_EMBD, N_FF), "ffn_up": (N_EMBD, N_FF),
        "ffn_down": (N_FF, N_EMBD)}.items()}


def layer_norms(names):
    """The tensors of LayerNorms."""
    return {f"{n}.{x}": (0, (N_EMBD,)) for n in names for x in ("weight", "bias")}


def experts(arch, shared=True):
    """Keys and tensors of four experts, of which a row is given to two, and one for all."""
    k = {f"{arch}.{n}": (U32, v) for n, v in {
        "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 8}.items()}
    t = {"ffn_gate_inp.weight": (N_EMBD, 4)}
    for x, (a, b) in {"gate": (N_EMBD, 8), "up": (N_EMBD, 8), "down": (8, N_EMBD)}.items():
        t[f"ffn_{x}_exps.weight"] = (a, b, 4)
        if shared:
            t[f"ffn_{x}_shexp.weight"] = (a, b)
    return k, {"blk.0." + n: (0, s) for n, s in t.items()}


def latent(arch, old):
    """A latent of 8 values for two heads, split as in newer files or not."""
    mla = "" if old else "_mla"
    k = {f"{arch}.attention.{n}": (U32, v) for n, v in {
        "kv_lora_rank": 8, "key_length" + mla: 16, "value_length" + mla: 8}.items()}
    t = {"attn_q.weight": (N_EMBD, 32), "attn_kv_a_mqa.weight": (N_EMBD, 16),
         "attn_kv_a_norm.weight": (8,)}
    t |= {"attn_kv_b.weight": (8, 32)} if old else {
        "attn_k_b.weight": (8, 8, 2), "attn_v_b.weight": (8, 8, 2)}
    return k, {"blk.0." + n: (0, s) for n, s in t.items()}


def ssm(arch, inner, state, rank, group):
    return {f"{arch}.ssm.{n}": (U32, v) for n, v in {
        "conv_kernel": 4, "inner_size": inner, "state_size": state, "time_step_rank": rank,
        "group_count": group}.items()}
