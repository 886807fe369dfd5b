"""What searches."""

from __future__ import annotations

from abc import ABC, abstractmethod

from .search_results import SearchResults

__all__ = ["Searcher"]


class Searcher(ABC):
    """A search with all that it needs."""

    @abstractmethod
    def search(self) -> SearchResults:
        """Searches, and gives what was found."""
