"""PostgreSQL as such: engines and connections, a sentence for each of its errors, and a server to try it all on.

`engine` reads URLs as people write them, and makes engines that keep their deadlines. `connections` opens one
connection outside every pool, for those who hold it long: listeners, locks, and who looks at a server in trouble.
`explain` turns what a driver raised into one sentence with a remedy; `connecting` knows what only connecting brings up,
`outages` what passes by itself. `hosts` finds the one that is wanted of several servers in one URL.
`asyncpg_inside` has all that is used of asyncpg and not promised by it.
`embedded` runs a server from a wheel, `unprivileged` its programs for a user who is root.

Everything in infrastructure may call it. It knows no table of ours: its imports are the settings and the errors alone.
"""
