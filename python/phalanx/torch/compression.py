"""How gradients travel between ranks."""

from __future__ import annotations

from typing import Any, Tuple

import torch

__all__ = ["Compression", "Compressor"]


class Compressor:
    """Makes tensors smaller before they travel. Derive from it for a format of your own."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        """The tensor that travels, and what is needed to restore it."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """What has travelled, restored."""
        raise NotImplementedError


class _NoneCompressor(Compressor):
    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class _FP16Compressor(Compressor):
    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        is_wide = tensor.dtype in (torch.float32, torch.float64)
        return (tensor.to(torch.float16), tensor.dtype) if is_wide else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tensor.to(ctx)


class Compression:
    """The formats there are."""

    none = _NoneCompressor
    """Values travel as they are."""
    fp16 = _FP16Compressor
    """Floats travel as 16-bit floats."""
