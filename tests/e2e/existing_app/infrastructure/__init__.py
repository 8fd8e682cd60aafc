"""The shop's own `infrastructure`."""
