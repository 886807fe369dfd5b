"""AML-IP's interface: main, computing, edge and inference nodes of a numbered domain."""
