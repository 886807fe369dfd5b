//! Which trial is trained how far, on how many nodes at once.
