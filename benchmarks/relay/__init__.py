"""The relay measured: each figure against its floor in the same run, on the product's own tables."""
