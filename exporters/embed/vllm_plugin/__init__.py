"""What makes a plug-in of vLLM out of the allocator probe: written out beside it, not imported."""
