"""How values travel: which types may, and how each is written and restored (K8).

`types` says which annotations may be on a wire at all, and `blame` why a value of one is not. `converter` is the one
cattrs converter; `scalars`, `containers`, `records` and the others give it a hook for each kind. `names` has the two
layouts, snake and camel.

Events' classes are checked here when they are registered, so that what cannot be restored fails at import.
`serialization` and `published` call it, and through them everything that stores or reads a payload.

It may import attrs, cattrs and the kernel's errors.
"""
