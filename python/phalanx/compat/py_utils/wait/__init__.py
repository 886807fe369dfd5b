"""Values that threads wait for."""
