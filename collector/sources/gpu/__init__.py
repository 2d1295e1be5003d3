"""GPUs and the memory that a process holds on them."""
