"""The paper, whole: every figure and table as data, run on any vectors."""

__all__: list[str] = []
