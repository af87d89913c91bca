"""What a model of make_models.py computes: a pass in float64, written from the papers.

`c` describes the model, as variants.py, families.py and recurrent.py do; `t` holds its tensors.
"""
import math

import numpy as np

import recurrent


def of_layer(c, key, i):
    """A width of layer i: one for all layers, or a list."""
    return c[key][i] if isinstance(c[key], list) else c[key]


def is_windowed(c, i):
    if "windowed" in c:
        return c["windowed"][i]
    every = c.get("full_every", 0)
    return "window" in c and (every == 0 or i % every < every - 1)


def dim_of(c, i):
    """Values of a head."""
    return c.get("window_dim", c["dim"]) if is_windowed(c, i) else c["dim"]


def kv_layer(c, i):
    """The layer whose keys and values layer i attends to: of the last ones, one before them."""
    own = c["layers"] - c.get("borrow", 0)
    return i if i < own else max(j for j in range(own) if is_windowed(c, j) == is_windowed(c, i))


def is_expert_layer(c, i):
    every = c.get("experts_every", 1)
    return (c.get("experts") and i >= c.get("dense_first", 0) and (i + 1) % every == 0
            and of_layer(c, "ff", i))


def ffn_norm_of(c):
    """The norm before the feed-forward part."""
    return "post_attention_norm" if c["arch"] == "gpt-oss" else c.get("ffn_norm", "ffn_norm")


def frequencies(c, t, windowed):
    """Radians a position for each pair, and the factor of cosines and sines."""
    n = c.get("rope_dims", c.get("window_dim", c["dim"]) if windowed else c["dim"])
    n = c.get("full_rope_dims", n) if not windowed else n
    base = c.get("window_base", c["base"]) if windowed else c["base"]
    f = base ** (-np.arange(0, n, 2) / n)
    plain = windowed and ("window_base" in c or c.get("window_unscaled"))
    scale, factor = c.get("attn_factor", 1.0), c.get("factor", 1.0)
    if plain:
        return f, 1.0
    if c.get("turning"):
        return f / t["rope_freqs.weight"][:n // 2], 1.0
    if c.get("factors"):
        return f / t[f"rope_factors_{c['factors']}.weight"], np.float64(np.float32(scale))
    if c.get("scaling") == "linear":
        return f / factor, scale
    if c.get("scaling") == "yarn":
        def dim(turns):
            return n * np.log(c["first_ctx"] / (turns * 2 * np.pi)) / (2 * np.log(base))
        low, high = dim(c.get("beta_fast", 32.0)), dim(1.0)
        if not c.get("yarn_between"):
            low, high = np.floor(low), np.ceil(high)
        low, high = max(0, low), min(n - 1, high)
        keep = 1 - np.clip((np.arange(n // 2) - low) / max(0.001, high - low), 0, 1)
        if "yarn_turn" not in c:
            scale *= 1 + 0.1 * np.log(factor)
        return f / factor * (1 - keep) + f * keep, scale * c.get("yarn_turn", 1.0)
    return f, scale


def best_groups(c, rank):
    """-inf for experts outside of the best groups, each worth its best or, biased, its best two."""
    groups = rank.reshape(c["groups"], -1)
    worth = np.sort(groups, -1)[:, -2 if c.get("select_bias") else -1:].sum(-1)
    kept = np.argsort(-worth, kind="stable")[:c["groups_used"]]
    return np.where(np.isin(np.arange(c["groups"]), kept)[:, None], groups, -np.inf).reshape(-1)


def mixed(scores, top):
    """SparseMixer's weights as Phi-3.5-MoE's code has them: a softmax over what comes close."""
    weights = []
    for i, e in enumerate(top):
        left = np.delete(scores, top[:i])
        close = (scores[e] - left) / np.maximum(np.abs(left), scores[e]) <= 0.02
        weights.append(1 / np.exp(left - scores[e])[close].sum())
    return np.array(weights)


def temper(c, pos):
    """What queries are multiplied by."""
    scale, length, offset = c.get("temper", (0.0, 1, 0))
    return 1 + np.float64(np.float32(scale)) * np.log(1 + (pos + offset) // length)


def slopes(exponent, n_head):
    """Of ALiBi, by head: powers of a base; past the last power of two of heads those between them."""
    n = 2 ** int(np.log2(n_head))
    powers = [h + 1 if h < n else h - n + 0.5 for h in range(n_head)]
    return np.float64(np.float32(2.0 ** (-exponent * np.array(powers) / n)))


def forward(c, t, ids):
    """Logits [len(ids), n_vocab] in float64; of models that look both ways hidden states."""
    t = {k: v.astype(np.float64) for k, v in t.items()}
    n = len(ids)
    pos = np.arange(n)
    eps = np.float64(np.float32(c["eps"]))

    def rms(x, w, eps=eps):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w

    def norm(x, name):
        weight = t.get(name + ".weight", 1.0)
        if not c.get("norm"):
            return rms(x, weight)
        x = x - x.mean(-1, keepdims=True)
        return rms(x, weight) + t.get(name + ".bias", 0.0)

    def rotate(x, windowed):
        f, scale = frequencies(c, t, windowed)
        a = pos[:, None] * f
        cos, sin = np.cos(a)[:, None] * scale, np.sin(a)[:, None] * scale
        r, out = 2 * len(f), x.copy()
        one, two = (slice(0, r // 2), slice(r // 2, r)) if c.get("pair") == "halves" else (
            slice(0, r, 2), slice(1, r, 2))
        out[..., one] = x[..., one] * cos - x[..., two] * sin
        out[..., two] = x[..., one] * sin + x[..., two] * cos
        return out

    def gate(g, u, limit=0):
        if limit:
            limit = np.float64(np.float32(limit))
            if c.get("bound_first"):
                g = np.minimum(g, limit)
            return np.minimum(g / (1 + np.exp(-g)), limit) * np.clip(u, -limit, limit)
        if c.get("act") == "situ":
            s, most = c["situ"]
            u = most * np.tanh(u / most) if most else u
            return s * np.tanh(g / s) / (1 + np.exp(-g)) * u
        if c.get("act") == "gelu":
            return 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g ** 3))) * u
        if c.get("act") == "gelu_exact":
            return 0.5 * g * (1 + np.vectorize(math.erf)(g / np.sqrt(2))) * u
        if c.get("act") == "relu2":
            return np.maximum(g, 0) ** 2 * u
        if c.get("act") == "relu":
            return np.maximum(g, 0) * u
        if c.get("act") == "clamped":
            g, u = np.minimum(g, 7), np.clip(u, -7, 7)
            return g / (1 + np.exp(-1.702 * g)) * (u + 1)
        return g / (1 + np.exp(-g)) * u

    def xielu(x, i):
        alpha_p, alpha_n, beta, eps = (np.float64(np.float32(c["plain_keys"]["xielu." + k][i])) for k in (
            "alpha_p", "alpha_n", "beta", "eps"))
        below = np.expm1(np.minimum(x, eps)) - x
        return beta * x + np.where(x > 0, np.log1p(np.exp(alpha_p)) * x * x,
                                   (beta + np.log1p(np.exp(alpha_n))) * below)

    def unary(x, i):
        if c["unary"] == "xielu":
            return xielu(x, i)
        if c["unary"] == "relu2":
            return np.maximum(x, 0) ** 2
        if c["unary"] == "gelu_tanh":
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))
        return 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))

    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    if c.get("loops"): # the same layers again
        n_layers = c["layers"]
        c = dict(c, layers=n_layers * c["loops"])
        for i in range(n_layers, c["layers"]):
            p = f"blk.{i % n_layers}."
            t.update({f"blk.{i}." + k[len(p):]: v for k, v in t.items() if k.startswith(p)})
    if c.get("cycles"): # two stacks of layers, in passes
        stack, low, cycles = c["layers"], c["cycles"][0], c["cycles"][1]
        c = dict(c, layers=stack * (low + 1) * cycles)
        of_file = {k: v for k, v in t.items() if k.startswith("blk.")}
        t = {k: v for k, v in t.items() if k not in of_file}
        for i in range(c["layers"]):
            number = i % stack + (stack if i // stack % (low + 1) == low else 0)
            p = f"blk.{number}."
            t.update({f"blk.{i}." + k[len(p):]: v for k, v in of_file.items() if k.startswith(p)})
    x = t["token_embd.weight"][ids] * np.float64(np.float32(c.get("embed_scale", 1.0)))
    if c.get("positions"):
        x = x + t["position_embd.weight"][:n]
    if c.get("embed_norm"):
        x = norm(x, "token_embd_norm")
    if c.get("embed_bare"):
        x = rms(x, 1.0)
    embedded = x
    if c.get("cycles"):
        made_high, made_low = x, np.zeros_like(x) + t["hrm.z_l_init"]
        x = made_high + made_low
    residual = np.float64(np.float32(c.get("residual", 1.0)))
    stored = {} # keys and values by layer
    if c.get("per_layer"):
        np_, nl = c["per_layer"], c["layers"]
        of_token = t["per_layer_token_embd.weight"][ids].reshape(n, nl, np_) * np_ ** 0.5
        projected = (x @ t["per_layer_model_proj.weight"].T * c["embd"] ** -0.5).reshape(n, nl, np_)
        own = (rms(projected, t["per_layer_proj_norm.weight"]) + of_token) * 0.5 ** 0.5
    if c.get("streams"):
        def matched(y, z):
            return y * np.sqrt((z * z).mean(-1, keepdims=True) / (y * y).mean(-1, keepdims=True))

        def modes(y, i):
            z = rms(y, t[f"blk.{i}.altup_router_norm.weight"]) / c["embd"]
            return np.tanh(z @ t[f"blk.{i}.altup_router.weight"].T)
        streams = [x] + [matched(x @ m.T, x) for m in t["altup_proj.weight"]]
    if c.get("connections"):
        streams = [x] * c["connections"]

    def connect(name):
        """What a sub-layer reads, and the weights by which it adds."""
        k = len(streams)
        z = rms(np.concatenate(streams, -1), 1.0) @ t[name + "_fn.weight"].T
        z = z * np.repeat(t[name + "_scale.weight"], k) + t[name + "_base.weight"]
        z = 1 / (1 + np.exp(-z))
        lifts = np.float32([c["connection_eps"], c["connection_gain"]]).astype(np.float64)
        return (sum((z[:, j, None] + lifts[0]) * s for j, s in enumerate(streams)),
                z[:, k:] * lifts[1] + lifts[0])
    kept = [] # what the stream was before each block of layers

    def recalled(x, w):
        """A mixture of that and of the stream as it is."""
        if not kept:
            return x
        each = np.stack(kept + [x], 1)
        return np.einsum("nk,nkd->nd", softmax(rms(each, 1.0) @ w), each)

    for i in range(c["layers"]):
        h, hk, ff = (of_layer(c, z, i) for z in ("heads", "heads_kv", "ff"))
        dim, is_recurrent = dim_of(c, i), recurrent.is_layer(c, i)
        if c.get("recurrent") and not hk or is_recurrent and not c.get("both"):
            h = hk = 0
        if c.get("streams"):
            coefs = modes(streams[0], i) @ t[f"blk.{i}.altup_predict_coef.weight"].T
            coefs = coefs.reshape(n, len(streams), len(streams))
            streams = [s + sum(coefs[:, j, k, None] * streams[k] for k in range(len(streams)))
                       for j, s in enumerate(streams)]
            x = streams[0]

        def norm_here(y, name):
            return norm(y, f"blk.{i}.{name}")

        def norm_after(y, name):
            return rms(y, w(name), c["after_eps"]) if c.get("after_eps") else norm_here(y, name)

        def w(name, kind="weight"):
            return t[f"blk.{i}.{name}.{kind}"]

        def linear(y, name):
            b = t.get(f"blk.{i}.{name}.bias")
            if name == "attn_qkv" and c.get("biases_apart"):
                b = np.concatenate([w("attn_" + z, "bias") for z in "qkv"])
            scale = t[f"blk.{i}.{name}.scale"] if f"blk.{i}.{name}" in c.get("scaled", []) else 1
            return y @ w(name).T * scale + (0 if b is None else b)

        def attend_latent(y):
            """As DeepSeek-V2 defines it: each head's keys and values made of the latent."""
            r, dr, dk, dv = c["latent"], c["rope_dims"], c["head_key"], c["head_value"]
            z = y
            if c.get("q_latent"):
                z = rms(linear(y, "attn_q_a"), w("attn_q_a_norm"))
            q = (z @ w("attn_q_b" if c.get("q_latent") else "attn_q").T).reshape(n, h, dk)
            kv = linear(y, "attn_kv_a_mqa")
            latent = rms(kv[:, :r], w("attn_kv_a_norm"))
            if c.get("unsplit"):
                both = w("attn_kv_b").reshape(h, dk - dr + dv, r)
                k_b, v_b = both[:, :dk - dr], both[:, dk - dr:]
            else:
                k_b, v_b = w("attn_k_b").transpose(0, 2, 1), w("attn_v_b")
            k = np.einsum("nr,hkr->nhk", latent, k_b)
            v = np.einsum("nr,hvr->nhv", latent, v_b)
            turned = kv[:, None, r:]
            if not c.get("unrotated"):
                turned = rotate(turned, False)
                q = np.concatenate([q[..., :dk - dr], rotate(q[..., dk - dr:], False)], -1)
            k = np.concatenate([k, np.repeat(turned, h, 1)], -1)
            s = np.einsum("qhd,khd->hqk", q * temper(c, pos)[:, None, None], k)
            s = s * dk ** -0.5 * c.get("yarn_scores", 1.0)
            s = np.where(pos[:, None] < pos[None, :], -np.inf, s)
            if c.get("sinks"):
                s = np.concatenate([s, np.repeat(w("attn_sinks")[:, None, None], n, 1)], -1)
            gathered = np.einsum("hqk,khd->qhd", softmax(s)[..., :n], v)
            if c.get("gated_attention"):
                factors = 1 / (1 + np.exp(-linear(y, "attn_gate")))
                gathered = gathered * factors.reshape(n, h, -1)
            return linear(gathered.reshape(n, h * dv), "attn_output")

        def attend(y):
            if c.get("latent"):
                return attend_latent(y)
            windowed = is_windowed(c, i)
            if hk == 0:
                return linear(y, "attn_output")
            if kv_layer(c, i) != i: # only queries
                q = rms(linear(y, "attn_q").reshape(n, h, dim), w("attn_q_norm"))
                return weigh(rotate(q, windowed), *stored[kv_layer(c, i)], windowed)
            value = c.get("value_dim", dim)
            if c.get("fused") or c.get("fused_qkv"):
                of_q = 2 * h * dim if c.get("gate_in_query") else h * dim
                q, k, v = np.split(linear(y, "attn_qkv"), [of_q, of_q + hk * dim], -1)
            elif c.get("value_of_key") and not windowed:
                q, k = linear(y, "attn_q"), linear(y, "attn_k")
                v = k
            else:
                q, k, v = (linear(y, "attn_" + z) for z in "qkv")
            if c.get("clamp"):
                q, k, v = (np.clip(z, -c["clamp"], c["clamp"]) for z in (q, k, v))
            if c.get("qk_norm") == "rows":
                q, k = rms(q, w("attn_q_norm")), rms(k, w("attn_k_norm"))
            if c.get("gate_in_query"):
                q, in_query = np.split(q.reshape(n, h, 2 * dim), 2, -1)
            q, k, v = q.reshape(n, h, dim), k.reshape(n, hk, dim), v.reshape(n, hk, value)
            if c.get("qk_norm") == "each":
                q, k = (rms(z - z.mean(-1, keepdims=True), w(f"attn_{x}_norm"), c.get("qk_eps", eps))
                        + t.get(f"blk.{i}.attn_{x}_norm.bias", 0.0) for z, x in ((q, "q"), (k, "k")))
            if c.get("value_norm"):
                v = rms(v, 1.0)
            if c.get("qk_norm") in ("heads", "own"):
                q, k = rms(q, w("attn_q_norm")), rms(k, w("attn_k_norm"))
            rotated = not c.get("no_rope_every") or (i + 1) % c["no_rope_every"]
            rotated = rotated and not (
                c.get("full_unrotated") and not windowed and i >= c.get("lead_rotated", 0))
            rotated = rotated and not c.get("unrotated") and c.get("rotated", [True] * (i + 1))[i]
            if rotated:
                q, k = rotate(q, windowed), rotate(k, windowed)
                if c.get("qk_norm") == "bare":
                    q, k = rms(q, 1.0), rms(k, 1.0)
            if not rotated or not c.get("full_unrotated"):
                q = q * temper(c, pos)[:, None, None]
            if c.get("qk_norm") == "factors":
                q, k = rms(q, w("attn_q_norm")), rms(k, 1.0)
            if c.get("qk_norm") == "rotated":
                q, k = rms(q, w("attn_q_norm")), rms(k, w("attn_k_norm"))
            stored[i] = k, v
            if c.get("gate_in_query"):
                return weigh(q, k, v, windowed, in_query.reshape(n, -1))
            return weigh(q, k, v, windowed, linear(y, "attn_gate") if c.get("gated_attention") else None)

        def gate_of(z):
            """What the heads are multiplied by: a factor for each value, or each head."""
            z = np.repeat(z, h * dim // z.shape[1], 1)
            return np.log1p(np.exp(z)) if c.get("gated_attention") == "softplus" else 1 / (1 + np.exp(-z))

        def weigh(q, k, v, windowed, gate=None):
            k, v = np.repeat(k, h // hk, 1), np.repeat(v, h // hk, 1)
            s = np.einsum("qhd,khd->hqk", q, k) * np.float64(
                np.float32(c.get("attention_scale", dim ** -0.5)))
            if "cap" in c:
                s = c["cap"] * np.tanh(s / c["cap"])
            apart = pos[:, None] - pos[None, :]
            if c.get("alibi"):
                s = s - slopes(c["alibi"], h)[:, None, None] * np.abs(apart)
            window = c.get("window", 1)
            if c.get("both_ways"):
                hidden = windowed & (np.abs(apart) > window // 2)
            elif c.get("chunks"):
                hidden = (apart < 0) | (windowed & (pos[:, None] // window != pos[None, :] // window))
            else:
                hidden = (apart < 0) | (windowed & (apart >= window))
            s = np.where(hidden, -np.inf, s)
            if c.get("sinks") and (windowed or c["sinks"] != "windowed"):
                sinks = np.broadcast_to(w("attn_sinks")[:, None, None], (h, n, 1))
                s = np.concatenate([s, sinks], -1)
            s = softmax(s)[..., :n]
            gathered = np.einsum("hqk,khd->qhd", s, v).reshape(n, -1)
            if gate is not None:
                gathered = gathered * gate_of(gate)
            if c.get("sub_norms"):
                gathered = norm_here(gathered, "attn_sub_norm")
            return linear(gathered, "attn_output") * np.float64(np.float32(c.get("value_scale", 1.0)))

        def join(y, read):
            """What a sub-layer puts out, and the stream, or what it read of it."""
            return read * residual + y if c.get("norms") == "stream" else x + y * residual

        if c.get("connections"):
            x, weights_out = connect(f"blk.{i}.hc_attn")
        before = x
        if c.get("recall"):
            y = recalled(x, w("attn_res_score"))
            if i % c["recall"] == 0:
                kept.append(x)
                x = 0.0
            y = norm_here(y, "attn_norm")
            x = x + (recurrent.layer(c, i, t, y, eps) if is_recurrent else attend(y))
        elif is_recurrent and not h:
            y = norm_here(x, "attn_norm")
            out = recurrent.layer(c, i, t, y, eps)
            x = join(norm_after(out, "post_attention_norm") if c.get("norms") == "both" else out, y)
        if h and not c.get("recall"):
            name = "attn_norm_2" if c.get("second") == "attn_norm_2" else "attn_norm"
            bare = c.get("norms") == "after" or c.get("first_bare") and i == 0
            y = attend(x if bare else norm_here(x, name))
            if is_recurrent:
                y = y + recurrent.layer(c, i, t, norm_here(x, name), eps)
            if c.get("norms") in ("both", "after"):
                y = norm_after(y, c.get("after_names", ["post_attention_norm"])[0])
            x = join(y, None if bare else norm_here(x, name))
            if c.get("streams"):
                low = norm_here(before, "attn_norm")
                beside = norm_here(linear(linear(low, "laurel_l"), "laurel_r"), "laurel_post_norm")
                x = (x + beside + low) * 0.5 ** 0.5
        if not ff:
            continue
        if c.get("connections"):
            streams = [s + y * weights_out[:, j, None] for j, s in enumerate(streams)]
            x, weights_out = connect(f"blk.{i}.hc_ffn")
        if c.get("parallel"):
            y = norm_here(before, "ffn_norm" if c.get("second") == "ffn_norm" else "attn_norm")
        else:
            y = recalled(x, w("ffn_res_score")) if c.get("recall") else x
            y = y if c.get("norms") == "after" else norm_here(y, ffn_norm_of(c))
        if recurrent.mixes_channels(c):
            x = x + recurrent.channel_mix(c, t, i, y)
            x = x * 0.5 if c.get("rescale") and (i + 1) % c["rescale"] == 0 else x
            continue
        read = y
        if c.get("experts_first"):
            y = norm_here(before, "ffn_norm_exps")
        if is_expert_layer(c, i):
            out = np.zeros_like(x)
            used = of_layer(c, "used", i)
            limit, shared_limit = c.get("limits", [(0, 0)] * (i + 1))[i]
            if c.get("beside_dense"):
                dense = norm_here(linear(gate(linear(y, "ffn_gate"), linear(y, "ffn_up")), "ffn_down"),
                                  "post_ffw_norm_1")
                y = rms(x, w("ffn_gate_inp", "scale")) * c["embd"] ** -0.5
            scores = linear(before if c.get("router_first") else y, "ffn_gate_inp")
            if c.get("beside_dense"):
                y = norm_here(x, "pre_ffw_norm_2")
            if c.get("expert_stem"):
                wide, y = y, linear(y, c["expert_stem"] + "_down")
                out = np.zeros_like(y)
            for r in range(n):
                weights = 1 / (1 + np.exp(-scores[r])) if c.get("sigmoid") else softmax(scores[r])
                bias = t.get(f"blk.{i}.exp_probs_b.bias", t.get(f"blk.{i}.exp_probs_b"))
                rank = weights + bias if c.get("select_bias") else scores[r]
                if c.get("groups"):
                    rank = best_groups(c, rank if c.get("select_bias") else weights)
                top = np.argsort(-rank, kind="stable")[:used]
                if c.get("mixer"):
                    weights = mixed(scores[r], top)
                elif c.get("expert_input"):
                    weights = weights[top]
                elif c.get("over_all"):
                    weights = weights[top] * c.get("weights_scale", 1.0)
                elif c.get("weights_norm"):
                    weights = weights[top] / weights[top].sum() * c.get("weights_scale", 1.0)
                else:
                    weights = softmax(scores[r][top])
                for e, weight in zip(top, weights):
                    if c.get("beside_dense"):
                        g, u = np.split(w("ffn_gate_up_exps")[e] @ y[r], 2)
                        out[r] += weight * w("ffn_down_exps", "scale")[e] * (
                            w("ffn_down_exps")[e] @ gate(g, u))
                        continue
                    def one(z, name):
                        b = t.get(f"blk.{i}.{name}.bias")
                        return w(name)[e] @ z + (0 if b is None else b[e])
                    z = y[r] * weight if c.get("expert_input") else y[r]
                    if c.get("unary"):
                        z = w("ffn_latent_down") @ z if c.get("expert_latent") else z
                        z = one(unary(one(z, "ffn_up_exps"), i), "ffn_down_exps")
                        out[r] += weight * (w("ffn_latent_up") @ z if c.get("expert_latent") else z)
                        continue
                    if c.get("fused_experts"):
                        g, u = np.split(one(z, "ffn_gate_up_exps"), 2)
                        out[r] += weight * one(gate(g, u), "ffn_down_exps")
                        continue
                    out[r] += (1.0 if c.get("expert_input") else weight) * one(
                        gate(one(z, "ffn_gate_exps"), one(z, "ffn_up_exps"), limit), "ffn_down_exps")
            if c.get("expert_stem"):
                y = wide
                out = linear(norm_here(out, c["expert_stem"] + "_norm"), c["expert_stem"] + "_up")
            if c.get("ff_shared"):
                if c.get("unary"):
                    mid = unary(linear(y, "ffn_up_shexp"), i)
                elif c.get("fused_shared"):
                    mid = gate(*np.split(linear(y, "ffn_up_shexp"), 2, -1))
                else:
                    mid = gate(linear(y, "ffn_gate_shexp"), linear(y, "ffn_up_shexp"), shared_limit)
                shared = linear(mid, "ffn_down_shexp")
                if c.get("shared_gate"):
                    shared /= 1 + np.exp(-(y @ w("ffn_gate_inp_shexp")))[:, None]
                out = (out + shared) * (0.5 if c.get("shared_average") else 1.0)
            if c.get("dense_shared") and c["dense_shared"][i]:
                out = out + linear(gate(linear(y, "ffn_gate"), linear(y, "ffn_up")), "ffn_down")
                out = out * 0.5 ** 0.5
            y = out
            if c.get("beside_dense"):
                y = dense + norm_here(out, "post_ffw_norm_2")
            if c.get("experts_first"):
                z = norm_here(x, "ffn_norm")
                y = out + linear(gate(linear(z, "ffn_gate"), linear(z, "ffn_up")), "ffn_down")
        elif c.get("unary"):
            y = linear(unary(linear(y, "ffn_up"), i), "ffn_down")
        else:
            if c.get("fused") or c.get("fused_ffn"):
                g, u = np.split(linear(y, "ffn_up"), 2, -1)
            else:
                g, u = linear(y, "ffn_gate"), linear(y, "ffn_up")
            if c.get("sparse", [-np.inf] * (i + 1))[i] > -np.inf:
                cut = g.std(-1, keepdims=True) * np.float64(np.float32(c["sparse"][i]))
                g = np.maximum(g - g.mean(-1, keepdims=True) - cut, 0)
            y = gate(g, u, c.get("limits", [(0, 0)] * (i + 1))[i][1])
            y = linear(norm_here(y, "ffn_sub_norm") if c.get("sub_norms") else y, "ffn_down")
        if c.get("norms") in ("both", "after"):
            y = norm_after(y, c.get("after_names", ["post_ffw_norm"])[-1])
        x = join(y, read)
        if c.get("connections"):
            streams = [s + y * weights_out[:, j, None] for j, s in enumerate(streams)]
        if c.get("streams"):
            coefs = modes(x, i) @ w("altup_correct_coef").T
            change = x - streams[0]
            streams = [s + change * (1 + coefs[:, j, None]) for j, s in enumerate(streams)]
            y = linear(gate(linear(streams[0] * w("altup_correct_scale"), "inp_gate"), own[:, i]), "proj")
            streams = [streams[0]] + [s + norm_here(y, "post_norm") for s in streams[1:]]
        elif c.get("per_layer"):
            y = linear(gate(linear(x, "inp_gate"), own[:, i]), "proj")
            x = x + norm_here(y, "post_norm")
        if c.get("embed_again"):
            x = x + embedded * w("layer_output_scale")
        elif c.get("layer_scale"):
            x = x * w("layer_output_scale")
        if c.get("cycles") and (i + 1) % stack == 0 and i + 1 < c["layers"]:
            if i // stack % (low + 1) == low:
                made_high = rms(x, 1.0)
            else:
                made_low = rms(x, 1.0)
            x = made_high + made_low
        if c.get("loops") and (i + 1) % n_layers == 0 and i + 1 < c["layers"] and not c.get("unbroken"):
            x = norm(x, "output_norm")
    if c.get("recall"):
        x = recalled(x, t["output_res_score.weight"])
    if c.get("streams"):
        x = streams[0] + sum(matched(s @ m.T, streams[0])
                             for s, m in zip(streams[1:], t["altup_unembd_proj.weight"]))
        x = x / len(streams)
    if c.get("connections"):
        x, _ = connect("output_hc")
    if c.get("both_ways"):
        return norm(x, c.get("output_norm", "output_norm"))
    out = norm(x, c.get("output_norm", "output_norm")) @ t.get("output.weight", t["token_embd.weight"]).T
    out = (out + t.get("output.bias", 0.0)) / c.get("logit_divisor", 1.0)
    out = out * np.float64(np.float32(c.get("logit_factor", 1.0)))
    return c["final_cap"] * np.tanh(out / c["final_cap"]) if "final_cap" in c else out
