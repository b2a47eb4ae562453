"""From a framework's model to named arrays and back.

What counts as a model: a mapping from names to arrays of numpy, torch, JAX or CuPy, or a ``torch.nn.Module``, which
stands for its state dict. Rules, for all of them:

* JAX's arrays cannot be written to, and CuPy's are not: build them from round.arrays(), with jnp.asarray(array) each.
  (CuPy is tested with a stand-in of its kind.)
* Names are matched, order is not. Every tensor of the run's model must be there, with its shape. A model may hold more: that
  stays as it is here. Of floating-point tensors a warning says so, once a run, unless `only` names what travels.
* Floating-point tensors travel as fp32: float16, bfloat16 and float64 are converted on the way in, and back to the dtype
  they have here on the way out. Complex tensors are refused, and so is a floating-point tensor where an integer one is here.
* Half precision: a tensor that is loaded as float16 or bfloat16 is the base rounded, and `submit` hands over
  base + (trained - loaded), so a value that was not trained stays exactly what it is. A round knows the dtypes into which
  `load_into` wrote, and takes those that are handed over into account. Hand half-precision values that were made from
  `arrays()` over in their own dtype: widened to float32 they count as trained from the unrounded base.
* Integer and boolean tensors (a BatchNorm's ``num_batches_tracked``) travel as they are; the federation keeps the
  greatest value of each among the sites, and never averages them.
* Tied weights: two names of a module that share their storage are one tensor, and a run that starts from it has it under
  the first of the names. Loading writes it once, and both names have it. In a copied state dict they are two tensors, of
  which the second is not loaded: the warning names it.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import _precision
from .errors import ModelMismatch
from .schema import Schema, Tensor, dtype_name
from .selection import Only, check_against, chosen

_WRAPPERS = {"module.": "module", "_orig_mod.": "_orig_mod"}  # DistributedDataParallel's, torch.compile's: prefix, attribute
_MODELS_IN_CHECKPOINTS = ("model", "state_dict", "model_state_dict")

def named_tensors(model: Any) -> Mapping[str, Any]:
    """The model's tensors by name, in its order."""
    if hasattr(model, "state_dict") and hasattr(model, "load_state_dict"):
        return model.state_dict()
    if isinstance(model, Mapping):
        return model
    raise TypeError(
        f"a model is a torch module, a state dict or a mapping from names to arrays; this is a {type(model).__name__}"
    )


def to_arrays(model: Any, only: Only = None) -> Dict[str, np.ndarray]:
    """The model as named numpy arrays of the dtypes that travel: what a run starts from. Copies only to convert."""
    return _travelling(selected(model, only)[0])


def selected(model: Any, only: Only = None) -> Tuple[Dict[str, Any], int]:
    """The tensors that `only` selects, each once and as it is, and how many others there are: at those nobody looks."""
    tensors = _without_ties(named_tensors(model))
    try:
        kept = chosen(tensors, only, "the model")
    except ModelMismatch:
        _check_flat(tensors)
        raise
    found = {name: tensor for name, tensor in tensors.items() if name in kept}
    _check_flat(found)
    return found, len(tensors) - len(found)


def travels_as(name: str, tensor: Any) -> np.dtype:
    """In which dtype it travels, without a look at its values. ModelMismatch: in none."""
    dtype = getattr(tensor, "dtype", None)
    try:
        if _kind(name, tensor) == "f":
            return np.dtype(np.float32)
        if _is_torch(tensor):
            dtype = np.dtype(str(dtype).rpartition(".")[2])
        elif not isinstance(dtype, np.dtype):
            dtype = np.asarray(tensor).dtype
        dtype_name(dtype)
        return dtype
    except KeyError:
        why = f"tensor {name} has dtype {dtype}; a model holds floating-point tensors and counters of type int8 to int64, uint8 or bool"
    except ModelMismatch as error:
        why = str(error)
    raise ModelMismatch(f'{why}; leave out what is not to travel: only=["*", "!{name}"]')


def as_travelling(name: str, tensor: Any) -> np.ndarray:
    """The tensor as a numpy array of the dtype in which it travels; a copy only where it has to be converted."""
    dtype = travels_as(name, tensor)
    return _as_array(name, tensor).astype(dtype, copy=False)


def _travelling(tensors: Mapping[str, Any]) -> Dict[str, np.ndarray]:
    _check_flat(tensors)
    return {name: as_travelling(name, tensor) for name, tensor in tensors.items()}


def load_into(model: Any, schema: Schema, views: Mapping[str, np.ndarray], only: Only = None) -> Dict[str, Any]:
    """Copies every tensor of the run's model into `model`, in place, converted to the dtype it has there; returns those.

    only: those that the run's model consists of; ModelMismatch when it does not (fluvial/selection.py).
    """
    targets = named_tensors(model)
    check_against([tensor.name for tensor in schema], only, _without_ties(targets))
    _check_names(list(schema), targets)
    for tensor in schema:
        _check_target(tensor, targets[tensor.name])
    for tensor in schema:
        target = targets[tensor.name]
        if _is_torch(target):
            _load_torch(target, views[tensor.name])
        else:
            np.copyto(target, views[tensor.name], casting="unsafe")
    return {tensor.name: targets[tensor.name] for tensor in schema}


def load_arrays(model: Any, arrays: Any, *, only: Only = None) -> None:
    """Copies named arrays (fluvial.load_model, LocalFederation.model) into `model`, in place, by the rules above.

    arrays: whatever is a model, of any framework and dtype. only: the tensors of `model` that they are.
    """
    given = _travelling(named_tensors(arrays))
    schema = Schema((name, dtype_name(array.dtype), array.shape) for name, array in given.items())
    _precision.note_arrays(given, load_into(model, schema, given, only))
    if only is None:
        warn_of_others(model, schema, "the model that is loaded")


def warn_of_others(model: Any, schema: Schema, whose: str = "the run's model") -> None:
    """RuntimeWarning for floating-point tensors of `model` that are not loaded: neither by name nor in another one's memory."""
    tensors = named_tensors(model)
    others = [name for name, tensor in tensors.items() if name not in schema and _is_float(tensor)]
    if not others:
        return
    loaded = [_extent(tensors[tensor.name]) for tensor in schema]
    left = [name for name in others if not any(_overlap(_extent(tensors[name]), extent) for extent in loaded)]
    if left:
        warnings.warn(
            f"{len(left)} floating-point tensors are not in {whose}: they stay as they are here; name what travels with "
            f"only=... ({_shown(left)})",
            RuntimeWarning,
            stacklevel=3,
        )


def fitting(model: Any, wanted: Sequence[Tensor], only: Only = None) -> List[Tuple[Tensor, Any]]:
    """These tensors of a run with what the model has for each, ready for `write_tensor`.

    ModelMismatch when one is missing, has another shape or dtype, or is not what `only` selects.
    """
    sources = named_tensors(model)
    if only is not None:
        check_against([tensor.name for tensor in wanted], only, _without_ties(sources))
    _check_names(wanted, sources)
    return [(tensor, _source(tensor, sources[tensor.name])) for tensor in wanted]


def write_tensor(view: np.ndarray, source: Any) -> None:
    """Copies one tensor, of any framework, into an array of its shape, converting to its dtype as it goes."""
    if isinstance(source, np.ndarray):
        np.copyto(view, source, casting="unsafe")
    elif not _is_torch(source):
        np.copyto(view, _as_array("", source), casting="unsafe")
    elif view.size and view.flags.aligned:
        import torch

        torch.from_numpy(view).copy_(source.detach())  # from any dtype and device, without a copy in between
    else:
        np.copyto(view, _as_array("", source), casting="unsafe")


def zeros_like(model: Any) -> Dict[str, np.ndarray]:
    """Zeros for what a model averages, as fp32: what a run of gradients or of `allreduce` starts from.

    Of a torch module those are its parameters that are trained, each once; of a mapping its floating-point tensors; a
    single array or tensor is called "value".
    """
    named: Mapping[str, Any]
    if hasattr(model, "named_parameters"):
        named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    else:
        named = named_tensors(model) if isinstance(model, Mapping) else {"value": model}
    averaged = {name: tensor for name, tensor in named.items() if _kind(name, tensor) == "f"}
    return {name: np.zeros(np.shape(tensor), np.float32) for name, tensor in averaged.items()}


def like(given: Any, view: np.ndarray) -> Any:
    """An array of a model as what was given is: a tensor of its dtype and device, or a numpy array of its dtype."""
    if _is_torch(given):
        import torch

        return torch.from_numpy(np.array(view)).to(dtype=given.dtype, device=given.device)
    dtype = getattr(given, "dtype", view.dtype)
    return view.astype(dtype if isinstance(dtype, np.dtype) else view.dtype, copy=False)


def _is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def _storage_key(tensor: Any) -> Any:
    """Equal for tensors that are the same memory seen the same way; None for those that own nothing."""
    if _is_torch(tensor) and tensor.numel() and _has_memory(tensor):
        return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype
    if isinstance(tensor, np.ndarray) and tensor.size:
        return tensor.ctypes.data, tensor.shape, tensor.strides, tensor.dtype.str
    return None


def _has_memory(tensor: Any) -> bool:
    """Whether a tensor of torch has values of its own, one after the other."""
    return str(tensor.layout) == "torch.strided" and not tensor.is_meta


def _is_float(tensor: Any) -> bool:
    try:
        return hasattr(tensor, "dtype") and _kind("", tensor) == "f" and 0 not in np.shape(tensor)
    except ModelMismatch:
        return False


def _extent(tensor: Any) -> Optional[Tuple[str, int, int]]:
    """Device, first byte and end of a tensor's memory; None where that cannot be told."""
    if _is_torch(tensor):
        try:
            device, begin, size = str(tensor.device), tensor.data_ptr(), tensor.element_size()
            strides = [stride * size for stride in tensor.stride()]
        except RuntimeError:  # it has no memory of its own
            return None
    elif isinstance(tensor, np.ndarray):
        device, begin, size, strides = "cpu", tensor.ctypes.data, tensor.itemsize, list(tensor.strides)
    else:
        return None
    reach = [(length - 1) * stride for length, stride in zip(np.shape(tensor), strides)]
    return device, begin + sum(min(0, way) for way in reach), begin + sum(max(0, way) for way in reach) + size


def _overlap(one: Optional[Tuple[str, int, int]], other: Optional[Tuple[str, int, int]]) -> bool:
    return one is not None and other is not None and one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


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


def _check_names(wanted: Sequence[Tensor], tensors: Mapping[str, Any]) -> None:
    missing: List[str] = [tensor.name for tensor in wanted if tensor.name not in tensors]
    if missing:
        _check_flat(tensors)
        raise ModelMismatch(
            f"of the tensors of the run's model {len(missing)} are not in this one: {_shown(missing)}"
            + _why_missing([tensor.name for tensor in wanted], tensors)
        )


def _why_missing(wanted: Sequence[str], tensors: Mapping[str, Any]) -> str:
    """What is likely to be meant: the model within a wrapper."""
    bare = {_unwrapped(name)[0] for name in tensors}
    if not all(_unwrapped(name)[0] in bare for name in wanted):
        return ""
    here, there = (next((way for _, way in map(_unwrapped, names) if way), "") for names in (tensors, wanted))
    if here:
        return f"; the names here are those of a wrapper: pass model{here}"
    return f"; the run's names are those of a wrapper: start it from model{there}" if there else ""


def _unwrapped(name: str) -> Tuple[str, str]:
    """A name without the prefixes of wrappers, and the way through these: ("0.weight", ".module")."""
    way = ""
    while True:
        prefix = next((prefix for prefix in _WRAPPERS if name.startswith(prefix)), None)
        if prefix is None:
            return name, way
        name, way = name[len(prefix) :], f"{way}.{_WRAPPERS[prefix]}"


def _check_flat(tensors: Mapping[str, Any]) -> None:
    """That these are tensors, and not a checkpoint with a model in it."""
    nested = [name for name, given in tensors.items() if isinstance(given, Mapping) or hasattr(given, "state_dict")]
    if nested:
        name = next((name for name in _MODELS_IN_CHECKPOINTS if name in nested), nested[0])
        if name.endswith("_extra_state"):
            raise ModelMismatch(f'{name} is a module\'s state that is no tensor; leave it out: only=["*", "!*_extra_state"]')
        raise ModelMismatch(
            f"{name!r} holds tensors and is none: of a checkpoint pass the model alone, checkpoint[{name!r}]; of a nested tree, "
            "its leaves by name"
        )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _check_target(tensor: Tensor, target: Any) -> None:
    """That a tensor of the run can be written there."""
    _check_shape(tensor, target)
    if tensor.averaged and _kind(tensor.name, target) != "f":
        found = getattr(target, "dtype", type(target).__name__)
        raise ModelMismatch(f"tensor {tensor.name} has dtype {found} here, and {tensor.dtype} in the run: it would be cut off")
    if _is_torch(target):
        return
    if not isinstance(target, np.ndarray):
        raise TypeError(
            f"tensor {tensor.name} is a {type(target).__name__}, which cannot be written in place; build a model "
            "from round.arrays() instead"
        )
    if not target.flags.writeable:
        raise ModelMismatch(f"tensor {tensor.name} is read-only; pass a copy of it")


def _check_dense(name: str, given: Any) -> None:
    """ModelMismatch: what stands for a tensor has no values of its own for each of its elements."""
    if given is None:
        raise ModelMismatch(
            f"tensor {name} is None: a parameter that no loss reached has no gradient; give zeros, torch.zeros_like(parameter)"
        )
    if _is_torch(given) and str(given.layout) != "torch.strided":
        raise ModelMismatch(f"tensor {name} is sparse ({given.layout}); give tensor.to_dense()")


def _check_shape(tensor: Tensor, given: Any) -> None:
    _check_dense(tensor.name, given)
    shape: Tuple[int, ...] = tuple(np.shape(given))
    if shape != tensor.shape:
        raise ModelMismatch(f"tensor {tensor.name} has shape {list(shape)}; in the run it is {list(tensor.shape)}")


def _kind(name: str, tensor: Any) -> str:
    """"f" for what is averaged, "i", "u" or "b" for what is not; ModelMismatch for anything else."""
    if _is_torch(tensor):
        dtype = tensor.dtype
        kind = "f" if tensor.is_floating_point() else "c" if tensor.is_complex() or tensor.is_quantized else "i"
        if not _has_memory(tensor):
            what = "is on the device meta, without values" if tensor.is_meta else f"is sparse ({tensor.layout}): pass its to_dense()"
            raise ModelMismatch(f"tensor {name} {what}")
    else:
        dtype = tensor.dtype if isinstance(getattr(tensor, "dtype", None), np.dtype) else np.asarray(tensor).dtype
        kind = "f" if dtype.name == "bfloat16" else dtype.kind  # an extension type, which numpy does not count as one
    if kind not in "fiub":
        found = f"is {tensor!r:.40}, and no tensor" if kind in "OUS" else f"has dtype {dtype}"
        raise ModelMismatch(f"tensor {name} {found}; a model holds real numbers and counters")
    return kind


def _source(tensor: Tensor, given: Any) -> Any:
    """What is to be copied for a tensor of the run: an array that fits it, where it is."""
    _check_shape(tensor, given)
    if tensor.averaged != (_kind(tensor.name, given) == "f"):
        found = getattr(given, "dtype", type(given).__name__)
        raise ModelMismatch(f"tensor {tensor.name} has dtype {found}; in the run it is {tensor.dtype}")
    return given if hasattr(given, "dtype") else np.asarray(given)


def _as_array(name: str, tensor: Any) -> np.ndarray:
    _check_dense(name, tensor)
    if _is_torch(tensor):
        import torch

        tensor = tensor.detach()
        if tensor.is_floating_point():
            tensor = tensor.to(torch.float32)
        array = tensor.cpu().numpy()
    else:
        # CuPy's arrays are numpy's when they are asked.
        array = np.asarray(tensor.get() if hasattr(tensor, "get") and hasattr(tensor, "dtype") else tensor)
        if array.dtype.name == "bfloat16":  # an extension type, which numpy does not count as floating point
            array = array.astype(np.float32)
    _kind(name, array)
    return array


def _load_torch(target: Any, view: np.ndarray) -> None:
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the source is read-only, and stays so
        target.copy_(torch.from_numpy(np.require(view, requirements=["A"])))
