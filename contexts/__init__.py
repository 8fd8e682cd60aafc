"""The bounded contexts of the reference application, a package each; `infrastructure` finds them by name."""
