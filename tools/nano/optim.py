"""Two optimizers, with the rate given at each step as a share of the peak.

Muon turns the momentum of a matrix into the nearest orthogonal one before it is applied. AdamW has
the vectors and the embedding.
"""

import torch


def orthogonal(stack, steps=5):
    """Newton-Schulz iteration on [n, rows, cols]: all singular values go to about one."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = stack.bfloat16()
    wide = x.shape[1] <= x.shape[2]
    x = x if wide else x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x if wide else x.mT).float()


class Muon:
    def __init__(self, params, rate, momentum=0.95, decay=0.01):
        self.rate, self.momentum, self.decay = rate, momentum, decay
        self.params = list(params)
        self.buffers = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self, share):
        rate = self.rate * share
        shapes = {}
        for p, buffer in zip(self.params, self.buffers):
            buffer.lerp_(p.grad, 1 - self.momentum)
            shapes.setdefault(p.shape, []).append((p, p.grad.lerp(buffer, self.momentum)))
        for (rows, cols), group in shapes.items():
            turned = orthogonal(torch.stack([g for _, g in group]))
            for (p, _), update in zip(group, turned):
                p.mul_(1 - rate * self.decay)
                p.sub_(update, alpha=rate * max(1.0, rows / cols) ** 0.5)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def state_dict(self):
        return self.buffers

    def load_state_dict(self, buffers):
        self.buffers = buffers


class AdamW(torch.optim.AdamW):
    def __init__(self, params, rate):
        super().__init__(params, rate, betas=(0.9, 0.98), weight_decay=0.0)
        self.peak = rate

    def step(self, share):
        for group in self.param_groups:
            group["lr"] = self.peak * share
        super().step()
