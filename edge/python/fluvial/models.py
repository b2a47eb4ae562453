"""From a framework's model to named arrays and back.

What counts as a model: a mapping from names to numpy arrays, to torch tensors or to JAX arrays, or a
``torch.nn.Module``, which stands for its state dict. Rules, for all of them:

* Names are matched, order is not. Every tensor of the run's model must be there, with its shape; a module may hold more
  (buffers that are not persistent, say), a mapping too.
* Floating-point tensors travel as fp32: float16, bfloat16 and float64 are converted on the way in, and back to the dtype
  they have here on the way out. Complex tensors are refused.
* Integer and boolean tensors (a BatchNorm's ``num_batches_tracked``) travel as they are; the federation keeps the
  greatest value of each among the sites, and never averages them.
* Tied weights: two names of a module that share their storage are one tensor, and a run that starts from it has it under
  the first of the names. Loading writes it once, and both names have it.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np

from .errors import ModelMismatch
from .schema import Schema, Tensor, dtype_name


def named_tensors(model: Any) -> Mapping[str, Any]:
    """The model's tensors by name, in its order."""
    if hasattr(model, "state_dict") and hasattr(model, "load_state_dict"):
        return model.state_dict()
    if isinstance(model, Mapping):
        return model
    raise TypeError(
        f"a model is a torch module, a state dict or a mapping from names to arrays; this is a {type(model).__name__}"
    )


def to_arrays(model: Any) -> Dict[str, np.ndarray]:
    """The model as named numpy arrays of the dtypes that travel: what a run starts from. Copies only to convert."""
    arrays = {}
    for name, tensor in _without_ties(named_tensors(model)).items():
        array = _as_array(name, tensor)
        if array.dtype.kind == "f":
            array = array.astype(np.float32, copy=False)
        try:
            dtype_name(array.dtype)
        except KeyError:
            raise ModelMismatch(
                f"tensor {name} has dtype {array.dtype}; a model holds floating-point tensors and counters of type "
                "int8, int16, int32, int64, uint8 or bool"
            ) from None
        arrays[name] = array
    return arrays


def load_into(model: Any, schema: Schema, views: Mapping[str, np.ndarray]) -> None:
    """Copies every tensor of the run's model into `model`, in place, converted to the dtype it has there."""
    targets = named_tensors(model)
    _check_names(schema, targets)
    for tensor in schema:
        target = targets[tensor.name]
        _check_shape(tensor, target)
        if _is_torch(target):
            _load_torch(target, views[tensor.name])
        elif isinstance(target, np.ndarray):
            if not target.flags.writeable:
                raise ModelMismatch(f"tensor {tensor.name} is read-only; pass a copy of it")
            np.copyto(target, views[tensor.name], casting="unsafe")
        else:
            raise TypeError(
                f"tensor {tensor.name} is a {type(target).__name__}, which cannot be written in place; build a model "
                "from round.arrays() instead"
            )


def load_arrays(model: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Copies named arrays (fluvial.load_model, LocalFederation.model) into `model`, in place, by the rules above."""
    load_into(model, Schema((name, dtype_name(array.dtype), array.shape) for name, array in arrays.items()), arrays)


def gather(model: Any, schema: Schema) -> Iterator[np.ndarray]:
    """The model's tensors in the order and with the dtypes in which they travel, contiguous. Copies only to convert."""
    sources = named_tensors(model)
    _check_names(schema, sources)
    for tensor in schema:
        _check_shape(tensor, sources[tensor.name])
    for tensor in schema:
        array = _as_array(tensor.name, sources[tensor.name])
        if tensor.averaged != (array.dtype.kind == "f"):
            raise ModelMismatch(f"tensor {tensor.name} has dtype {array.dtype}; in the run it is {tensor.dtype}")
        yield np.ascontiguousarray(array, tensor.dtype)


def _is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def _storage_key(tensor: Any) -> Any:
    """Equal for tensors that are the same memory seen the same way; None for those that own nothing."""
    if _is_torch(tensor) and tensor.numel():
        return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype
    if isinstance(tensor, np.ndarray) and tensor.size:
        return tensor.ctypes.data, tensor.shape, tensor.strides, tensor.dtype.str
    return None


def _without_ties(tensors: Mapping[str, Any]) -> Dict[str, Any]:
    seen = set()
    kept = {}
    for name, tensor in tensors.items():
        key = _storage_key(tensor)
        if key is not None and key in seen:
            continue
        seen.add(key)
        kept[name] = tensor
    return kept


def _check_names(schema: Schema, tensors: Mapping[str, Any]) -> None:
    missing: List[str] = [tensor.name for tensor in schema if tensor.name not in tensors]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise ModelMismatch(
            f"the run's model has {len(schema)} tensors, of which {len(missing)} are not in this one: {shown}"
        )


def _check_shape(tensor: Tensor, given: Any) -> None:
    shape: Tuple[int, ...] = tuple(np.shape(given))
    if shape != tensor.shape:
        raise ModelMismatch(f"tensor {tensor.name} has shape {list(shape)}; in the run it is {list(tensor.shape)}")


def _as_array(name: str, tensor: Any) -> np.ndarray:
    if _is_torch(tensor):
        import torch

        tensor = tensor.detach()
        if tensor.is_floating_point():
            tensor = tensor.to(torch.float32)
        array = tensor.cpu().numpy()
    else:
        array = np.asarray(tensor)
        if array.dtype.name == "bfloat16":  # an extension type, which numpy does not count as floating point
            array = array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise ModelMismatch(f"tensor {name} has dtype {array.dtype}; a model holds real numbers and counters")
    return array


def _load_torch(target: Any, view: np.ndarray) -> None:
    import warnings

    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the source is read-only, and stays so
        target.copy_(torch.from_numpy(np.require(view, requirements=["A"])))
