"""What nodes exchange, each type in a module of its name."""
