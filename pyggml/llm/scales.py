"""Static scales: of weights (`X.scale`) and of the KV cache (`attn_k.k_scale`, `attn_v.v_scale`).

One rule for all: real value = stored value x scale. A scale is one finite number > 0 after the cast
to F32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml.dtypes import f8_e4m3
from pyggml.errors import ModelError, ParameterError

if TYPE_CHECKING:
    from typing import TypeAlias

    from pyggml.dtypes import DType
    from pyggml.tensor import Tensor

    # layer -> (k, v); None runs that side at 1
    KVScales: TypeAlias = Mapping[int, tuple[float | None, float | None]]

K_SCALE = "blk.{}.attn_k.k_scale"
V_SCALE = "blk.{}.attn_v.v_scale"


def scale_value(value: Any, what: str, error: type[Exception] = ParameterError) -> float:
    """A scale as the float that F32 holds.

    Raises:
        error: not one number, or not finite and > 0 once it is F32; the message starts with `what`.
    """
    if isinstance(value, bool | np.bool_ | str | bytes) or value is None:
        raise error(f"{what}: {value!r} is not a number")
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as e:
        raise error(f"{what}: {value!r} is not a number") from e
    if array.shape not in ((), (1,)):
        raise error(f"{what}: one value is needed, got shape {array.shape}")
    with np.errstate(over="ignore", under="ignore"):
        scale = float(array.reshape(()).astype(np.float32))
    if not (np.isfinite(scale) and scale > 0):
        raise error(f"{what}: {value!r} is not finite and > 0 in F32")
    return scale


def tensor_scale(t: Tensor, what: str) -> float:
    """The value of a scale tensor: shape () or (1,), F32 or BF16.

    Raises:
        ModelError: another shape or dtype, or a bad value.
    """
    if t.dtype.name not in ("f32", "bf16") or t.shape not in ((), (1,)):
        raise ModelError(
            f"{what}: a scale is one F32 or BF16 value, found shape {t.shape} {t.dtype.name}"
        )
    return scale_value(t.dequantize(), what, ModelError)


def check_complete(scales: KVScales, n_layers: int, source: str) -> None:
    """A file gives a side (K or V) a scale in every layer, or in none.

    Raises:
        ModelError: a partial set; lists the layers without.
    """
    for side, name in enumerate(("k_scale", "v_scale")):
        missing = [i for i in range(n_layers) if scales.get(i, (None, None))[side] is None]
        if missing and len(missing) < n_layers:
            layers = ", ".join(map(str, missing))
            raise ModelError(f"{source}: {name} is given for some layers but not for {layers}")


def choose_kv_scales(
    option: str | KVScales,
    from_file: KVScales,
    n_layers: int,
    kinds: tuple[DType, DType] = (f8_e4m3, f8_e4m3),
) -> dict[int, tuple[float | None, float | None]]:
    """The scales a context runs with.

    Args:
        option: "file" takes the file's, "unit" runs all at 1, a mapping {layer: (k or None, v or
            None)} gives them; layers it does not name run at 1.
        from_file: what the file holds.
        n_layers: layers of the model.
        kinds: dtypes of the K and V sides of the cache.

    Raises:
        ParameterError: an unknown word, a layer outside the model, not a pair, a bad value, or one
            for a side that is not of F8_E4M3, which is never scaled.
    """
    if option == "file":
        return dict(from_file)
    if option == "unit":
        return {}
    if not isinstance(option, Mapping):
        raise ParameterError(f"kv_scales: 'file', 'unit' or a mapping is needed, got {option!r}")
    chosen: dict[int, tuple[float | None, float | None]] = {}
    for layer, pair in option.items():
        if isinstance(layer, bool) or not isinstance(layer, int | np.integer):
            raise ParameterError(f"kv_scales: the layer {layer!r} is not an integer")
        if not 0 <= layer < n_layers:
            raise ParameterError(f"kv_scales: layer {layer} is outside 0..{n_layers - 1}")
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ParameterError(f"kv_scales: layer {layer}: a pair (k, v) is needed, got {pair!r}")
        k, v = (
            None if s is None else scale_value(s, f"kv_scales: layer {layer}: {side}")
            for s, side in zip(pair, "kv", strict=True)
        )
        for s, kind, side in zip((k, v), kinds, "kv", strict=True):
            if s is not None and not kind.is_scaled:
                raise ParameterError(
                    f"kv_scales: layer {layer}: {side}: a cache of {kind.name} has no scales "
                    f"(type_{side}='f8_e4m3' has)"
                )
        chosen[int(layer)] = (k, v)
    return chosen
