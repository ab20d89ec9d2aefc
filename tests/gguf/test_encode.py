"""The numpy encoders against exact arithmetic and against the gguf package."""

from __future__ import annotations

from fractions import Fraction

import gguf
import ml_dtypes
import numpy as np
import pytest

from pyggml.gguf.constants import BY_NAME
from pyggml.gguf.encode import check_encodable, encode, encode_q8_0

F8 = BY_NAME["f8_e4m3"]


def e4m3_value(code: int) -> Fraction:
    """What a code without its sign stands for, from the format's definition."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 0:
        return Fraction(mantissa, 512)
    return Fraction(8 + mantissa, 8) * Fraction(2) ** (exponent - 7)


def nearest_e4m3(x: float) -> int:
    """The code of a finite number: nearest, ties to the even code, saturating."""
    size = min(Fraction(abs(x)), Fraction(448))
    code = min(range(0x7F), key=lambda c: (abs(e4m3_value(c) - size), c & 1))
    return code | (0x80 if np.signbit(x) else 0)


def f8_codes(values: object, dtype: object = np.float32) -> list[int]:
    return encode(np.array(values, dtype), F8).tolist()


def test_every_e4m3_code_is_kept():
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    assert encode(codes, F8).tolist() == list(range(256))
    assert encode(codes.astype(np.float32), F8).tolist() == list(range(256))


def test_e4m3_rounds_to_nearest_even_at_every_midpoint():
    values = []
    for code in range(0x7E):
        middle = np.float32((e4m3_value(code) + e4m3_value(code + 1)) / 2)
        values += [
            middle,
            np.nextafter(middle, np.float32(0)),
            np.nextafter(middle, np.float32(1e9)),
        ]
    values += [-v for v in values]
    assert f8_codes(values) == [nearest_e4m3(float(v)) for v in values]


def test_e4m3_rounds_once():
    # through f16 or bf16 these would come out one code off
    assert f8_codes([1.31640625]) == [0x3B]
    bits = np.array([0x3F880001, 0x41880001, 0x3A800001], np.uint32).view(np.float32)
    assert f8_codes(bits) == [0x39, 0x59, 0x01]


def test_e4m3_saturates_and_keeps_signs():
    above = [448, 464, np.nextafter(np.float32(464), np.float32(500)), 465, 1000, 3e10, np.inf]
    assert f8_codes(above) == [0x7E] * 7
    assert f8_codes([-v for v in above]) == [0xFE] * 7
    assert f8_codes([0.0, -0.0, 2.0**-10, -(2.0**-10), 1e-30]) == [0, 0x80, 0, 0x80, 0]
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7FA00000, 0xFF800001], np.uint32).view(np.float32)
    for repeat in (1, 3, 40):  # short and long arrays take different paths in numpy
        assert f8_codes(np.tile(nans, repeat)) == [0x7F, 0xFF, 0x7F, 0xFF] * repeat


def test_narrow_floats_become_e4m3_directly():
    halves = np.arange(65536, dtype=np.uint16)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        values = halves.view(dtype)
        expected = encode(values.astype(np.float32), F8)
        np.testing.assert_array_equal(encode(values, F8), expected)


@pytest.mark.parametrize(
    ("bits", "f16", "bf16"),
    [
        (0x3F800000, 0x3C00, 0x3F80),
        (0x3F801000, 0x3C00, 0x3F80),  # f16 tie to even
        (0x3F803000, 0x3C02, 0x3F80),
        (0x3F808000, 0x3C04, 0x3F80),  # bf16 tie to even
        (0x3F818000, 0x3C0C, 0x3F82),
        (0x47800000, 0x7C00, 0x4780),  # 65536 overflows f16
        (0x7F7FFFFF, 0x7C00, 0x7F80),
        (0x80000000, 0x8000, 0x8000),
        (0x33800000, 0x0001, 0x3380),  # smallest f16 subnormal
    ],
)
def test_f16_and_bf16_round_to_nearest_even(bits, f16, bf16):
    value = np.array([bits], np.uint32).view(np.float32)
    assert encode(value, BY_NAME["f16"]).view(np.uint16).tolist() == [f16]
    assert encode(value, BY_NAME["bf16"]).view(np.uint16).tolist() == [bf16]


def q8_arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    normal = rng.standard_normal((64, 256)).astype(np.float32)
    return [
        normal,
        normal * np.float32(1e-3),
        normal * np.exp(rng.uniform(-20, 10, (64, 1))).astype(np.float32),
        np.zeros((2, 32), np.float32),
        np.ones((1, 32), np.float32),
        # halves after scaling: round away from zero
        np.concatenate([np.arange(-15.5, 15.5, 1, np.float32), [127]]).astype(np.float32)[None],
        rng.integers(-127, 128, (64, 32)).astype(np.float32) / 2,
    ]


@pytest.mark.parametrize("x", q8_arrays(), ids=lambda x: str(x.shape))
def test_q8_0_equals_the_gguf_package(x):
    theirs = gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(encode(x, BY_NAME["q8_0"]), theirs.reshape(-1))


def test_q8_0_by_hand():
    x = np.zeros(32, np.float32)
    x[:6] = [127, -127, 0.5, -0.5, 0.49999997, 2.5]
    out = encode_q8_0(x)
    assert out[:2].view(np.float16)[0] == 1
    assert out[2:9].view(np.int8).tolist() == [127, -127, 1, -1, 0, 3, 0]


def test_q8_0_of_numbers_whose_inverse_overflows_is_zero():
    x = np.full(32, 1e-40, np.float32)
    assert not encode_q8_0(x).any()


def test_arrays_are_read_in_logical_order():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    f32 = BY_NAME["f32"]
    assert encode(x.T, f32).tobytes() == np.ascontiguousarray(x.T).tobytes()
    assert encode(x[::-1, ::2], f32).tobytes() == x[::-1, ::2].copy().tobytes()
    assert encode(x.astype(">f4"), f32).tobytes() == x.tobytes()
    assert encode(np.float32(3).reshape(()), f32).view(np.float32).tolist() == [3]


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("f8", "f16"),
        ("f8", "bf16"),
        ("f8", "f8_e4m3"),  # would round twice
        ("f8", "q8_0"),
        ("i4", "f32"),
        ("f4", "i32"),
        ("u1", "i8"),
        ("?", "f32"),
        ("f4", "q4_0"),
        ("f4", "f64"),
        ("O", "f32"),
    ],
)
def test_conversions_that_are_refused(dtype, kind):
    with pytest.raises(ValueError, match=f"cannot write a .* array as {kind}"):
        check_encodable(np.zeros(32, dtype), BY_NAME[kind])
