"""The network: the llama architecture as GGUF files mean it, with a tied output matrix."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Shape:
    vocab: int = 1536
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 768
    rope_base: float = 10000.0
    eps: float = 1e-5

    @property
    def head_width(self):
        return self.width // self.heads


def rope_table(length, shape):
    """cos and sin, each [length, head_width / 2]."""
    half = torch.arange(0, shape.head_width, 2).float() / shape.head_width
    angle = torch.arange(length).float()[:, None] * shape.rope_base ** -half
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """x [batch, time, heads, head_width]; elements 2i and 2i+1 turn together."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).type_as(x)


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        kv = s.kv_heads * s.head_width
        self.shape = s
        self.attn_norm = Norm(s.width, s.eps)
        self.attn_q = nn.Linear(s.width, s.width, bias=False)
        self.attn_k = nn.Linear(s.width, kv, bias=False)
        self.attn_v = nn.Linear(s.width, kv, bias=False)
        self.attn_output = nn.Linear(s.width, s.width, bias=False)
        self.ffn_norm = Norm(s.width, s.eps)
        self.ffn_gate = nn.Linear(s.width, s.ffn, bias=False)
        self.ffn_up = nn.Linear(s.width, s.ffn, bias=False)
        self.ffn_down = nn.Linear(s.ffn, s.width, bias=False)

    def attend(self, x, cos, sin):
        s = self.shape
        q = rotate(self.attn_q(x).unflatten(-1, (s.heads, -1)), cos, sin)
        k = rotate(self.attn_k(x).unflatten(-1, (s.kv_heads, -1)), cos, sin)
        v = self.attn_v(x).unflatten(-1, (s.kv_heads, -1))
        k, v = (y.repeat_interleave(s.heads // s.kv_heads, 2) for y in (k, v))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn_output(y.transpose(1, 2).flatten(-2))

    def forward(self, x, cos, sin):
        x = x + self.attend(self.attn_norm(x), cos, sin)
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocab, shape.width)
        self.blk = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape.width, shape.eps)
        self.apply(self.draw)

    def draw(self, module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features ** -0.5)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.05)
        if isinstance(module, Layer):  # what is added to the residual starts at nothing
            nn.init.zeros_(module.attn_output.weight)
            nn.init.zeros_(module.ffn_down.weight)

    def hidden(self, ids):
        """ids [batch, time] to the normed states [batch, time, width]."""
        cos, sin = rope_table(ids.shape[1], self.shape)
        x = self.token_embd(ids)
        for layer in self.blk:
            x = layer(x, cos, sin)
        return self.output_norm(x)

    def logits(self, hidden):
        return F.linear(hidden, self.token_embd.weight)

    def forward(self, ids):
        return self.logits(self.hidden(ids))
