"""Plain drift reports of two files: `comparing` is the way, `opening` reads, `page` shows."""
