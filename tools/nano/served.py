"""The model as it is served: shape, vocabulary and weights read back from the GGUF file."""

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

import vocab
from generate import chatml
from model import Model, Shape, rope_table, rotate

FIELDS = {"vocab": "llama.vocab_size", "width": "llama.embedding_length",
          "layers": "llama.block_count",
          "heads": "llama.attention.head_count", "kv_heads": "llama.attention.head_count_kv",
          "ffn": "llama.feed_forward_length", "rope_base": "llama.rope.freq_base",
          "eps": "llama.attention.layer_norm_rms_epsilon"}


def read_vocabulary(fields):
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(vocab.QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in vocab.SPECIAL])
    return tok


class Served:
    """Greedy decoding, in float32 from the dequantised weights."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.tok = read_vocabulary(reader.fields)
        self.model = Model(Shape(**{k: reader.fields[f].contents() for k, f in FIELDS.items()}))
        weights = {t.name: torch.from_numpy(np.array(gguf.quants.dequantize(t.data, t.tensor_type)))
                   for t in reader.tensors}
        self.model.load_state_dict(weights)
        self.model.eval()
        self.end = self.tok.token_to_id("<|im_end|>")

    def step(self, layer, x, tables, cache):
        """One layer for new positions x [rows, new, width]; cache holds past keys and values."""
        s, h = self.model.shape, layer.attn_norm(x)
        q = rotate(layer.attn_q(h).unflatten(-1, (s.heads, -1)), *tables).transpose(1, 2)
        k = rotate(layer.attn_k(h).unflatten(-1, (s.kv_heads, -1)), *tables).transpose(1, 2)
        v = layer.attn_v(h).unflatten(-1, (s.kv_heads, -1)).transpose(1, 2)
        if cache:
            k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        cache[:] = [k, v]
        k, v = (y.repeat_interleave(s.heads // s.kv_heads, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)
        x = x + layer.attn_output(y.transpose(1, 2).flatten(-2))
        h = layer.ffn_norm(x)
        return x + layer.ffn_down(F.silu(layer.ffn_gate(h)) * layer.ffn_up(h))

    @torch.no_grad()
    def decode(self, prompts, limit):
        """For prompts of one length: the greedy answers' ids, and each one's smallest margin."""
        ids = torch.tensor(prompts)
        caches = [[] for _ in self.model.blk]
        cos, sin = rope_table(ids.shape[1] + limit, self.model.shape)
        answers, margins = [[] for _ in prompts], [float("inf")] * len(prompts)
        running, at, new = set(range(len(prompts))), 0, ids
        for _ in range(limit):
            tables = cos[at:at + new.shape[1]], sin[at:at + new.shape[1]]
            at += new.shape[1]
            x = self.model.token_embd(new)
            for layer, cache in zip(self.model.blk, caches):
                x = self.step(layer, x, tables, cache)
            top = self.model.logits(self.model.output_norm(x[:, -1])).topk(2)
            for i in list(running):
                margins[i] = min(margins[i], (top.values[i, 0] - top.values[i, 1]).item())
                token = top.indices[i, 0].item()
                if token == self.end:
                    running.discard(i)
                else:
                    answers[i].append(token)
            if not running:
                break
            new = top.indices[:, :1]
        return answers, margins

    def answer_all(self, conversations, limit=160, batch=256):
        """[(answer, smallest margin)] to conversations, each a list of Message."""
        prompts = [self.tok.encode(chatml(c, ask=True)).ids for c in conversations]
        groups, out = {}, [None] * len(prompts)
        for i, p in enumerate(prompts):
            groups.setdefault(len(p), []).append(i)
        for group in groups.values():
            for i in range(0, len(group), batch):
                part = group[i:i + batch]
                answers, margins = self.decode([prompts[j] for j in part], limit)
                for j, a, m in zip(part, answers, margins):
                    out[j] = self.tok.decode(a), m
        return out
