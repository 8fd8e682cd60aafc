"""How people show themselves: one profile for each account."""
