"""Single files that measure inside other people's processes; standard library only."""
