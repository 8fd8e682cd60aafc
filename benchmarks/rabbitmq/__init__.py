"""RabbitMQ: from a backlog to the broker, from a queue to the handler, and from a commit to another machine."""
