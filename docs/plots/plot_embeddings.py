"""
Embeddings that find topics
===========================

There are words from five topics, and words of the same topic occur together. A skip-gram model with
negative sampling learns two numbers for each word. The tape's gradients of looked-up rows are
sparse, and Adagrad updates only these rows of the table.
"""

import matplotlib.pyplot as plt
import numpy as np

import tfopt
from tfopt.optimizers import Adagrad

WORDS, TOPICS = 200, 5
random = np.random.default_rng(1)
topics = random.integers(0, TOPICS, WORDS)
members = [np.flatnonzero(topics == k) for k in range(TOPICS)]

first = tfopt.Variable(random.normal(0, 0.3, (WORDS, 2)))
second = tfopt.Variable(random.normal(0, 0.3, (WORDS, 2)))
optimizer = Adagrad(0.5)
for _ in range(1000):
    words = random.integers(0, WORDS, 512)
    near = np.array([random.choice(members[topics[word]]) for word in words])
    far = random.integers(0, WORDS, 512)
    with tfopt.GradientTape() as tape:
        rows = first[words]
        together = np.sum(rows * second[near], axis=1)
        apart = np.sum(rows * second[far], axis=1)
        loss = np.mean(np.logaddexp(0, -together) + np.logaddexp(0, apart))
    optimizer.minimize(loss, [first, second], tape=tape)

figure, axis = plt.subplots(figsize=(5.5, 5), layout="constrained")
points = first.numpy()
axis.scatter(points[:, 0], points[:, 1], c=topics, cmap="tab10", s=25)
axis.set(title="200 words, colored by their hidden topic", xticks=[], yticks=[], aspect="equal")
plt.show()
