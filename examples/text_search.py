# ---
# jupytext:
#   formats: py:percent
# kernelspec:
#   display_name: Python 3
#   language: python
#   name: python3
# ---

# %% [markdown]
# # Search 10,000 sentences
#
# The sentences come from the documentation inside scikit-learn, scipy and numpy, which are
# installed with densehash: nothing is downloaded. TF-IDF and a truncated SVD turn them into
# vectors. A neural model gives better vectors (`examples/sentence_search.py` uses one); the rest
# stays the same.

# %%
import ast
import re
import time
from pathlib import Path

import numpy as np
import scipy
import sklearn
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from densehash import Index, truth

ROWS = 10_000

# %% [markdown]
# ## The sentences
#
# Every docstring is read without importing its module, and cut at full stops.


# %%
def docstring(node: ast.AST) -> str:
    """The docstring of a module, class or function; of anything else nothing."""
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
        return ast.get_docstring(node) or ""
    return ""


def sentences_of(package: str) -> list[dict[str, str]]:
    """Sentences of the docstrings of a package, each with the module it is from."""
    root = Path(package).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        if "tests" in path.parts or path.name.startswith("_test"):
            continue
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_bytes())):
            text = " ".join(re.split(r"(?m)^(?:Examples|References)$", docstring(node))[0].split())
            found += [
                {"text": sentence, "module": module}
                for sentence in re.split(r"(?<=[a-z]\.) ", text)
                if re.fullmatch(r"[A-Z][\w ,'()`-]{40,250}\.", sentence)
            ]
    return found


every = [each for package in (sklearn, scipy, np) for each in sentences_of(str(package.__file__))]
rows = list({each["text"]: each for each in every}.values())[:ROWS]  # each sentence once
print(len(rows), "sentences, such as:", rows[len(rows) // 2]["text"])

# %% [markdown]
# ## Vectors
#
# `encoder` takes a list of texts and returns float64 (n, 128), each row of length one.

# %%
texts = [row["text"] for row in rows]
encoder = make_pipeline(
    TfidfVectorizer(stop_words="english", sublinear_tf=True),
    TruncatedSVD(128, random_state=0),
    Normalizer(),
)
vectors = encoder.fit_transform(texts)
print(vectors.shape)

# %% [markdown]
# ## The index
#
# The sentence and its module are the payload: the index keeps them beside the vectors. A search
# returns them with the rows it finds, and can filter by them.

# %%
start = time.perf_counter()
index = Index.build(vectors, payload=rows, metric="cosine", random_state=0)
print(index, f"built in {time.perf_counter() - start:.2f} s")
print(index.reason)

# %% [markdown]
# ## Questions


# %%
def ask(question: str, k: int = 3, where: str | None = None) -> None:
    """Print the nearest sentences."""
    print(question)
    for hit in index.search(encoder.transform([question]), k, filter=where).to_dicts()[0]:
        print(f"  {hit['distance']:.2f}  {hit['text']}  [{hit['module']}]")


ask("solve a sparse linear system")
ask("how many clusters are there")
ask("split the rows into training and test data")

# %% [markdown]
# With a filter, a search still finds `k` rows if `k` rows match. Here, all come from one package.

# %%
ask("the probability of an event", where='module >= "scipy" and module < "sklearn"')

# %% [markdown]
# ## Was everything found?
#
# `index.recall` says what to expect, measured while the index was built. `truth.nearest` compares
# every row, so it finds the true neighbours to check with.

# %%
queries = encoder.transform([text.lower() for text in texts[::50]])
near = truth.nearest(queries, vectors, k=10, metric="cosine")
hits = index.search(queries, k=10)
found = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(hits.ids, near, strict=True)])
print(f"expected {index.recall:.3f}, found {found:.3f} of the ten nearest")
