"""PyTorch models: modules, tied weights, bf16 parameters, counters."""

import warnings

import numpy as np
import pytest

import fluvial
from fluvial import models
from test_models import round_trip, write

torch = pytest.importorskip("torch", reason="needs PyTorch")


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 3)
        self.output = torch.nn.Linear(3, 5, bias=False)
        self.output.weight = self.embedding.weight
        self.norm = torch.nn.BatchNorm1d(3)


def test_module_with_tied_weights_and_counters():
    torch.manual_seed(1)
    source, target = Tied(), Tied()
    source.norm.num_batches_tracked += 41
    arrays = models.to_arrays(source)
    assert "embedding.weight" in arrays and "output.weight" not in arrays
    assert arrays["norm.num_batches_tracked"].dtype == np.int64
    round_trip(source, target)
    assert torch.equal(target.output.weight, source.embedding.weight)
    assert target.output.weight is target.embedding.weight
    assert target.norm.num_batches_tracked == 41


def test_bfloat16_parameters():
    source = torch.nn.Linear(4, 3).to(torch.bfloat16)
    target = torch.nn.Linear(4, 3).to(torch.bfloat16)
    assert models.to_arrays(source)["weight"].dtype == np.float32
    round_trip(source, target)
    assert torch.equal(target.weight, source.weight)
    assert target.weight.dtype == torch.bfloat16 and target.weight.requires_grad


def test_state_dict_is_loaded_in_place():
    source, target = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    round_trip(source.state_dict(), target.state_dict())
    assert torch.equal(target.weight, source.weight)


def test_named_arrays_into_a_module():
    source, target = Tied(), Tied()
    with torch.no_grad():
        source.embedding.weight += 1
    models.load_arrays(target, models.to_arrays(source))
    assert torch.equal(target.output.weight, source.embedding.weight)


def test_a_run_that_names_a_tied_weight_twice_serves_a_tied_module():
    weight = np.arange(15, dtype=np.float32).reshape(5, 3)
    run = {**models.to_arrays(Tied()), "embedding.weight": weight, "output.weight": weight.copy()}
    target = Tied()
    models.load_arrays(target, run)
    assert target.output.weight.tolist() == weight.tolist()
    schema = models.Schema((name, "F32", array.shape) for name, array in run.items() if array.dtype == np.float32)
    sent = schema.views(np.empty(schema.nbytes, np.uint8))
    write(sent, target, schema)
    assert np.array_equal(sent["output.weight"], weight) and np.array_equal(sent["embedding.weight"], weight)


def test_a_copied_state_dict_of_a_tied_module_is_told_what_stays():
    source, target = Tied(), {name: tensor.clone() for name, tensor in Tied().state_dict().items()}
    with pytest.warns(RuntimeWarning, match=r"stay as they are here.*\(output.weight\)"):
        models.load_arrays(target, models.to_arrays(source))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.load_arrays(Tied(), models.to_arrays(source))
        models.load_arrays(target, source.state_dict())
    assert torch.equal(target["output.weight"], source.output.weight), "both names are in a state dict"


def test_modules_and_tensors_of_other_dtypes_are_loaded():
    source, target = torch.nn.Linear(4, 3).to(torch.bfloat16), torch.nn.Linear(4, 3)
    models.load_arrays(target, source)
    assert torch.equal(target.weight, source.weight.float())
    models.load_arrays(target, {name: tensor.double() + 1 for name, tensor in source.state_dict().items()})
    assert torch.equal(target.weight, (source.weight.double() + 1).float())


def test_a_wrapped_module_is_told_from_another_one():
    class Wrapper(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    module = torch.nn.Linear(4, 3)
    with pytest.raises(fluvial.ModelMismatch, match=r"pass model\.module$"):
        models.load_arrays(Wrapper(module), module)
