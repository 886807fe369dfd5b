"""Evaluators that are there."""

from .functional import EvaluationFunction

__all__ = ["EvaluationFunction"]
