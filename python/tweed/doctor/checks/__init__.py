"""One file per check. `gather` looks and returns a plain value; `judge` makes findings of it, and is pure."""
