"""The kinds of nodes, each in a module of its name."""
