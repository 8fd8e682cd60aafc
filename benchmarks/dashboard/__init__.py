"""What the dashboard's pages cost, with as many events as asked for."""
