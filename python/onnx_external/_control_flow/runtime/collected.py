"""Represents lists whose length is known only in the graph, such as lists filled by loops."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import torch

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.sizes import size_of

_NO_ITEM = (
    "a single item is taken from a list whose length depends on a loop or a condition on a tensor; "
    "stack the list first, and index the tensor"
)
_READS = (
    "an iteration of a loop reads from a list to which earlier iterations have appended; store the "
    "items that it needs in a variable"
)


class Collected:
    """A list element that represents several items, whose number is computed in the graph.

    Args:
        values: the candidates for items, one in each row.
        kept: for each row, whether it is an item; None if all rows are items.
        lengths: the length of the item in each row, if items have different lengths.
    """

    _why_not = _NO_ITEM
    """The message for a use of the element as if it were one of its items."""

    def __init__(
        self,
        values: torch.Tensor,
        kept: torch.Tensor | None = None,
        lengths: torch.Tensor | None = None,
    ) -> None:
        self.values = values
        self.kept = kept
        self.lengths = lengths

    @property
    def rows(self) -> torch.Tensor:
        """The items as one tensor."""
        if self.lengths is not None:
            raise RewriteError(
                "the items of a list have different lengths; only torch.cat and "
                "torch.nn.utils.rnn.pad_sequence accept such a list"
            )
        return self.values if self.kept is None else self.values[self.kept]

    def mapped(self, function: Callable[[Any], Any]) -> Collected:
        """Return the same structure, with a function applied to its tensors."""
        return Collected(function(self.values), function(self.kept), function(self.lengths))

    def backwards(self) -> Collected:
        """Return the items in reverse order."""
        return self.mapped(lambda each: None if each is None else each.flip(0))

    def joined(self) -> torch.Tensor:
        """Return the items, concatenated along their first dimension."""
        if self.lengths is None:
            return self.rows.flatten(0, 1)
        return self.values[self._mask()]

    def padded(self, value: Any) -> torch.Tensor:
        """Return the items as rows, padded to the length of the longest item."""
        if self.lengths is None:
            return self.rows
        mask = self._mask()
        longest = size_of(self.lengths.max(), most=self.values.shape[1])
        mask = mask.reshape(*mask.shape, *[1] * (self.values.dim() - 2))
        return torch.where(mask, self.values, value)[:, :longest]

    def _mask(self) -> torch.Tensor:
        assert self.lengths is not None
        mask = torch.arange(self.values.shape[1]) < self.lengths.unsqueeze(1)
        return mask if self.kept is None else mask & self.kept.unsqueeze(1)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Stack or concatenate lists that contain such elements."""
        given = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        items = args[0] if args else given.pop("tensors", ())
        dim = given.pop("dim", args[1] if len(args) > 1 else 0)
        if name == "stack":
            rows = whole(items)
            return rows.movedim(0, dim) if dim else rows
        if name in ("cat", "concat", "concatenate"):
            return _concatenated(items, dim)
        if name == "pad_sequence":
            return _padded(*args, **kwargs or {})
        raise RewriteError(
            "a list whose length depends on a loop or a condition on a tensor is passed to "
            f"torch.{name}; only torch.stack, torch.cat and pad_sequence accept such a list"
        )

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an error if the element is used as a tensor."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise RewriteError(self._why_not)

    def _refuse(self, *_: Any) -> NoReturn:
        raise RewriteError(_NO_ITEM)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __getitem__ = __len__ = __bool__ = __iter__ = __lt__ = __gt__ = __neg__ = _refuse


class NotCountedError(RewriteError):
    """The length of a list is read in a loop whose iterations are not counted."""


class Mark(Collected):
    """During a trace, a list element that represents the items of all earlier iterations.

    Only their number can be read, and only in a loop that counts its iterations.
    """

    _why_not = _READS

    def __init__(self) -> None:
        """Make a mark whose number of items is not known yet."""
        self.count: Any = None
        self.is_counted = False

    def many(self) -> Any:
        """Return the number of items that the mark represents."""
        if self.count is None:
            raise NotCountedError(_READS)
        self.is_counted = True
        return self.count

    def mapped(self, function: Callable[[Any], Any]) -> Mark:
        """Return the mark unchanged, because it has no tensors."""
        return self

    @classmethod
    def __torch_function__(cls, *_: Any) -> NoReturn:
        """Raise an error if the mark is used as an operand."""
        raise RewriteError(_READS)


class Rows(list[Any]):
    """A list with an item for each row of a tensor; the trace does not know the number of rows."""

    def __init__(self, item: Collected) -> None:
        super().__init__([item])
        self.item = item

    @property
    def rows(self) -> torch.Tensor:
        """The items as one tensor."""
        return self.item.rows

    def mapped(self, function: Callable[[Any], Any]) -> Rows:
        """Return the same structure, with a function applied to its tensors."""
        return Rows(self.item.mapped(function))

    def __getitem__(self, at: Any) -> Any:
        """Return an item, or a list of items for a slice."""
        found = self.rows[at]
        return Rows(Collected(found)) if isinstance(at, slice) else found

    def __len__(self) -> int:
        """Return the length if it is known; otherwise the trace fails, and names the line."""
        return 1 if _is_padded() else int(self.rows.shape[0])

    def __bool__(self) -> bool:
        """Return whether there are items, if that is known, like `__len__`."""
        return bool(self.rows.shape[0] > 0)

    def __iter__(self) -> Iterator[Any]:
        """Yield the items if their number is known; for pad_sequence, yield all as one."""
        if _is_padded():
            return iter([self.item])
        return iter([self.rows[at] for at in range(len(self))])

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise RewriteError(
            "a list whose length depends on a loop or a condition on a tensor is changed other "
            "than by append; stack it first"
        )

    def __add__(self, other: list[Any]) -> list[Any]:
        """Return a list with other items appended."""
        return [self.item, *_raw(other)]

    insert = extend = pop = remove = sort = reverse = __delitem__ = __setitem__ = _refuse
    __iadd__ = __mul__ = append = clear = _refuse


def _is_padded() -> bool:
    """Return whether pad_sequence is iterating over the list."""
    return sys._getframe(2).f_code is torch.nn.utils.rnn.pad_sequence.__code__


def is_collected(values: Any) -> bool:
    """Return whether the length of a list is known only in the graph."""
    if isinstance(values, Rows):
        return True
    return type(values) is list and any(isinstance(each, Collected) for each in values)


def whole(items: Any) -> torch.Tensor:
    """Return the items of a list as the rows of one tensor."""
    rows = [
        e.rows if isinstance(e, Collected) else torch.as_tensor(e).unsqueeze(0) for e in _raw(items)
    ]
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _raw(items: Any) -> list[Any]:
    return list(list.__iter__(items)) if isinstance(items, list) else list(items)


def _padded(
    items: Any, batch_first: bool = False, value: float = 0.0, side: str = "right"
) -> torch.Tensor:
    """Perform the last step of torch.nn.utils.rnn.pad_sequence."""
    if len(_raw(items)) != 1 or side != "right":
        raise RewriteError(
            "pad_sequence pads on the left, or combines other items with a list whose length "
            "depends on a loop or on a condition on a tensor"
        )
    rows: torch.Tensor = _raw(items)[0].padded(value)
    return rows if batch_first else rows.transpose(0, 1)


def _concatenated(items: Any, dim: int) -> torch.Tensor:
    items = _raw(items)
    if any(isinstance(each, Collected) and each.lengths is not None for each in items):
        if dim != 0:
            raise RewriteError(
                "items of different lengths are concatenated along a dimension other than the first"
            )
        parts = [e.joined() if isinstance(e, Collected) else e for e in items]
        return parts[0] if len(parts) == 1 else torch.cat(parts)
    first = next(each for each in items if isinstance(each, Collected))
    dim %= first.values.dim() - 1
    parts = [
        e.rows.movedim(0, dim).flatten(dim, dim + 1) if isinstance(e, Collected) else e
        for e in items
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
