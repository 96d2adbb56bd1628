"""
Time of a step by the number of threads
=======================================

The plot shows the time of a step of Adam for each number of threads of this machine, and the memory
bandwidth that it reaches: a step reads and writes 28 bytes for each float32 weight. The weights
have the same bits each time.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import tfopt
from tfopt.optimizers import Adam

SIZE = 2**21
gradient = np.random.default_rng(0).standard_normal(SIZE, np.float32)
usual = tfopt.threads.get_num_threads()
counts = sorted({1, 2, usual})
seconds, results = [], []
for count in counts:
    tfopt.threads.set_num_threads(count)
    w, optimizer, times = np.ones(SIZE, np.float32), Adam(0.01), []
    for _ in range(20):
        start = time.perf_counter()
        optimizer.step(w, gradient)
        times.append(time.perf_counter() - start)
    seconds.append(min(times))
    results.append(w.tobytes())
tfopt.threads.set_num_threads(usual)
assert len(set(results)) == 1

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
names = [str(count) for count in counts]
left.bar(names, np.array(seconds) * 1e3)
left.set(xlabel="threads", ylabel="ms per step of 2 million weights")
right.bar(names, 28 * SIZE / np.array(seconds) / 1e9, color="C2")
right.set(xlabel="threads", ylabel="GB/s")
plt.show()
