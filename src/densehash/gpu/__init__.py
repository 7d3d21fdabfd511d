"""Code for GPUs, one file for each job. It is imported only when a tensor of torch is used."""

__all__: list[str] = []
