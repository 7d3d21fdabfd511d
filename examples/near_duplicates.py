# ---
# jupytext:
#   formats: py:percent
# kernelspec:
#   display_name: Python 3
#   language: python
#   name: python3
# ---

# %% [markdown]
# # Near-duplicate images
#
# Two photographs come with scikit-learn. They are cut into small pictures, some of which are
# copied with a change: brighter, noisier, or with 8 shades of grey. An index finds the pairs.

# %%
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

from densehash import Index

SIDE = 24  # pixels
COPIES = 300

# %% [markdown]
# ## The pictures

# %%
rng = np.random.default_rng(0)
photographs = [image.mean(axis=2).astype(np.float32) for image in load_sample_images().images]


def cut(photograph: NDArray[np.float32], top: int, left: int) -> NDArray[np.float32]:
    """One small picture, float32 (SIDE * SIDE,)."""
    return photograph[top : top + SIDE, left : left + SIDE].ravel()


places = [
    (number, top, left)
    for number, photograph in enumerate(photographs)
    for top in range(0, photograph.shape[0] - SIDE, 8)
    for left in range(0, photograph.shape[1] - SIDE, 8)
]
pictures = np.stack([cut(photographs[number], top, left) for number, top, left in places])
pictures = pictures[pictures.std(axis=1) > 15]  # the empty sky is near to itself
originals = rng.choice(len(pictures), COPIES, replace=False)
changes = [
    lambda p: p * 1.15 + 8,
    lambda p: p + rng.normal(0, 6, p.shape),
    lambda p: p // 32 * 32,
]
copies = np.stack([changes[i % 3](pictures[original]) for i, original in enumerate(originals)])
X = np.concatenate([pictures, copies]).astype(np.float32)
print(X.shape)

# %% [markdown]
# ## Pairs
#
# Brightness and contrast say little about what a picture shows, so each row is centred and scaled
# to length one. `near_duplicates` then finds all pairs within a distance.

# %%
X -= X.mean(axis=1, keepdims=True)
X /= np.linalg.norm(X, axis=1, keepdims=True)
index = Index.build(X, random_state=0)
pairs = index.near_duplicates(0.4, rerank="exact")
print(index)
print(len(pairs.ids), "pairs")

# %% [markdown]
# A copy counts as found if it is paired with the picture that it was made from.

# %%
found = {tuple(pair) for pair in pairs.ids.tolist()}
made = [(int(original), len(pictures) + i) for i, original in enumerate(originals)]
for number, change in enumerate(("brighter", "noisier", "8 shades")):
    own = made[number::3]
    print(f"{change}: {sum(pair in found for pair in own)} of {len(own)} copies found")

# %% [markdown]
# ## A look at some
#
# Each column shows a picture and, below it, the one that it was paired with. Pixels say nothing
# about what a picture shows: if you move a picture by one pixel, its vector is far from the old
# one. Vectors of a neural model solve that, and are indexed in the same way.

# %%
chosen = pairs.ids[np.linspace(0, len(pairs.ids) - 1, 12).astype(int)]
figure, axes = plt.subplots(2, len(chosen), figsize=(9, 1.7))
for column, pair in enumerate(chosen):
    for row, one in enumerate(pair):
        axes[row, column].imshow(X[one].reshape(SIDE, SIDE), cmap="gray")
        axes[row, column].axis("off")
plt.show()
