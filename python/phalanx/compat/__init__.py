"""The interfaces of other tools, over Phalanx.

Put ``phalanx.compat.`` before an import, and a program written for that tool runs on Phalanx::

    from phalanx.compat.amlip_py.node.AsyncMainNode import AsyncMainNode

Or run the program as it is: ``python -m phalanx.compat program.py``.
"""

from ._serve import SERVED, serve

__all__ = ["SERVED", "serve"]
