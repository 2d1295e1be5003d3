"""Shadow against production: files of scored lines, joined and compared token by token."""
