"""Arrays of other libraries, and objects that lie about their memory."""

import array
import ctypes

import numpy as np
import pytest

import phalanx
from phalanx import _arrays


class Dlpack:
    """A tensor of a library that NumPy does not know."""

    def __init__(self, values, device=(1, 0)):
        self.values = values
        self.device = device

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


class Image:
    """Pixels that a bytes object holds, as imaging libraries tell them."""

    def __init__(self, memory, shape, typestr="|u1", **more):
        self.__array_interface__ = {"version": 3, "data": memory, "shape": shape, "typestr": typestr, **more}


def test_memory_of_other_libraries_is_shared():
    values = np.arange(12, dtype="float32").reshape(3, 4)
    assert np.shares_memory(_arrays.as_array(Dlpack(values), "x"), values)
    numbers = array.array("d", [1.0, 2.0, 3.0])
    assert np.shares_memory(_arrays.as_array(numbers, "x"), np.frombuffer(numbers))
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0).reshape(2, 3)
    assert _arrays.as_array(tensor, "x").__array_interface__["data"][0] == tensor.data_ptr()
    leaf = torch.ones(2, 3, requires_grad=True)
    assert _arrays.as_array(leaf, "x").__array_interface__["data"][0] == leaf.data_ptr()


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v[:, ::2],
        lambda v: v[::-1],
        lambda v: np.broadcast_to(v[:1], v.shape),
        lambda v: v.T,
        lambda v: v.astype(">f4"),
        lambda v: Dlpack(v[:, ::-1]),
        lambda v: [Dlpack(row) for row in v],
        lambda v: memoryview(v),
        lambda v: Image(v.tobytes(), v.shape, "<f4"),
    ],
)
def test_any_strides_have_the_same_values(change):
    values = np.arange(12, dtype="float32").reshape(3, 4)
    changed = change(values)
    found = _arrays.as_array(changed, "x")
    assert type(found) is np.ndarray and found.flags.c_contiguous and found.dtype == np.float32
    wanted = changed if isinstance(changed, np.ndarray) else values[:, ::-1] if isinstance(changed, Dlpack) else values
    np.testing.assert_array_equal(found, wanted)


def address(of, shape, typestr="<f4"):
    liar = Image(None, shape, typestr)
    liar.__array_interface__["data"] = (of, False)
    return liar


class Raises:
    def __init__(self, error):
        self.error = error

    def __array__(self, *_arguments, **_options):
        raise self.error


class Odd:
    __array_struct__ = property(lambda self: 17)


class WrongDlpack(Dlpack):
    def __dlpack__(self, **_options):
        return "no capsule"


KEPT = ctypes.create_string_buffer(16)

LIARS = {
    "an address of nothing": lambda: address(16, (1 << 20,)),
    "an address of less": lambda: address(ctypes.addressof(KEPT), (1 << 30,)),
    "less memory than told": lambda: Image(b"1234", (4, 4)),
    "negative strides": lambda: Image(b"12345678", (4,), strides=(-1,)),
    "strides beyond the end": lambda: Image(b"12345678", (4,), strides=(100,)),
    "an offset beyond the end": lambda: Image(b"12345678", (4,), offset=100),
    "a negative shape": lambda: Image(b"12345678", (-4,)),
    "a shape that is none": lambda: Image(b"12345678", "four"),
    "a type that is none": lambda: Image(b"12345678", (4,), "what"),
    "objects": lambda: Image(b"12345678", (1,), "|O8"),
    "an interface that is none": lambda: type("L", (), {"__array_interface__": 17})(),
    "a struct that is none": Odd,
    "an array that is none": lambda: type("L", (), {"__array__": lambda self: [1]})(),
    "an error": lambda: Raises(ZeroDivisionError("of its own")),
    "a list of liars": lambda: [[address(16, (1 << 20,))]],
    "a capsule that is none": lambda: WrongDlpack(np.zeros(3)),
    "a device that is none": lambda: Dlpack(np.zeros(3), "device"),
    "no memory for it": lambda: np.broadcast_to(np.float32(0), (1 << 50, 4)),
}


@pytest.mark.parametrize("name", LIARS)
def test_objects_that_lie_are_refused(name):
    with pytest.raises(phalanx.InputError):
        _arrays.as_array(LIARS[name](), "x")
    with pytest.raises(phalanx.InputError):
        phalanx.fit("mlp", train=(LIARS[name](), np.zeros(4, "i8")), steps=1)


def test_an_interrupt_in_an_object_is_not_swallowed():
    with pytest.raises(KeyboardInterrupt):
        _arrays.as_array(Raises(KeyboardInterrupt()), "x")


def test_an_object_may_call_the_library():
    x, y = np.zeros((4, 784), "f4"), np.zeros(4, "i8")

    class Calls:
        def __array__(self, *_arguments, **_options):
            assert phalanx.fit("mlp", train=(x, y), steps=1).steps == 1
            return x

    assert phalanx.fit("mlp", train=(Calls(), y), steps=1).steps == 1


def test_memory_that_is_freed_by_its_owner_is_not_used():
    class Moving:
        """Gives other memory every time."""

        calls = 0

        @property
        def __array_interface__(self):
            self.calls += 1
            data = b"1234" if self.calls == 1 else (16, False)
            return {"version": 3, "data": data, "shape": (4,), "typestr": "|u1"}

    np.testing.assert_array_equal(_arrays.as_array(Moving(), "x"), np.frombuffer(b"1234", "u1"))
