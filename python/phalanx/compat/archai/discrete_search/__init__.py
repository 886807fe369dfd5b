"""Searches among discrete architectures: spaces, objectives, evaluators and the evolutionary Pareto search."""
