"""What runs on a GPU: one file a job. Nothing here is imported before a tensor of torch came."""

__all__: list[str] = []
