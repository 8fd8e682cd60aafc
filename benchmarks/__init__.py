"""Measurements, each against a floor in the same run; figures, never assertions in a timed test."""
