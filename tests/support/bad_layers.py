"""Layers that do what a layer must not."""

from __future__ import annotations

import os
import time

import torch
from torch import nn


class Hangs(nn.Module):
    def __init__(self):
        super().__init__()
        time.sleep(3600)


class Ends(nn.Module):
    def __init__(self):
        super().__init__()
        os._exit(7)


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        raise RuntimeError("no\nat all")


class Strange(nn.Module):
    def __init__(self, mystery):
        super().__init__()


class Prints(nn.Module):
    def __init__(self):
        super().__init__()
        print("this is no answer")

    def forward(self):
        pass


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("no way back")


class OneWay(nn.Module):
    def forward(self, x):
        return Twice.apply(x)
