"""How values travel: which types may, and how each is written and restored."""
