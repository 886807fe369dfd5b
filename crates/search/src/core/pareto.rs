//! Fronts, crowding and hypervolume.
