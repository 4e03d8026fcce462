"""Rate of matrix products on one thread in GFLOP/s, for float32 or bfloat16 and size 1,024 cubed."""

import sys
import time

import torch

torch.set_num_threads(1)
a = torch.randn(1024, 1024).to(getattr(torch, sys.argv[1]))
best = 0.0
end = time.perf_counter() + 1.0
while time.perf_counter() < end:
    begin = time.perf_counter()
    a @ a
    best = max(best, 2 * 1024**3 / (time.perf_counter() - begin) / 1e9)
print(best)
