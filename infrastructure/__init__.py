"""What touches the world: the database, the outbox, the command line. It knows no context by name."""
