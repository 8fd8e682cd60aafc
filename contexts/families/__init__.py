"""Who belongs together: families, their members, and the invitations by which people join them."""
