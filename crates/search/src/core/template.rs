//! A search file: a template of a run file with the choices of a space.
