"""Who may sign in: accounts, each with an e-mail address of its own."""
