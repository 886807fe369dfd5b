"""The names of Archai's discrete search, over Phalanx: see ``discrete_search``."""
