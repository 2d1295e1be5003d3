"""The process: it reads sources, calls the other packages, and serves the results."""
