"""Sealing: fields of events that are encrypted where they are stored, with a key for each whom they are about (O6).

A key of a subject is made in the transaction of the first event that needs it. It is read from the database and held
there by every flush that writes with it, and never remembered between two of them: so a key that was destroyed seals
nothing any more. `writing` is what capture and the inbox ask, `reading` what relays open payloads with, `records` is
for sessions without capture. `boxes` says what a sealed field looks like, `ciphers` is the one module that encrypts,
`keys` has the keys of subjects as they are stored, `requiring` refuses to begin without a master key.

The kernel knows which fields are sealed, and nothing of this: its payloads are clear, and so are those of the testing
kit and of handlers within the process.

It may import of `outbox` the statements and how they are sent; `relay`, `inbox` and `operations` call it.
"""
