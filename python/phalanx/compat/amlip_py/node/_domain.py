"""Numbered domains."""

from __future__ import annotations

from typing import Optional

from ...._nodes import Domain


def domain_of(number: Optional[int]) -> Domain:
    """The domain of a number; without one, it is 0. A domain with a key or known members is made by ``Domain``."""
    return number if isinstance(number, Domain) else Domain(f"amlip-{number or 0}")
