"""The application that `test_adopter.py` copies has tests of its own, for an environment of its own."""

collect_ignore = ["adopter_app"]
