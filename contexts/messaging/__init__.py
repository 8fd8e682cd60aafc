"""Messages to groups of contacts, and messages that are sent at a later time, once or again and again."""
