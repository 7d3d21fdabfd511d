"""The whole paper: every figure and table as data, for any vectors."""

__all__: list[str] = []
