"""How closely weights agree after several steps of Adam with the learning rate 1e-2."""

import functools

import torch

# A hundredth of a step: Adam takes a full step even where the gradient is almost zero and rounding can flip its sign.
near = functools.partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)
