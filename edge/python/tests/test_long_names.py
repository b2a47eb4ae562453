"""Models whose names and shapes are longer than a message of any protocol on their way to a worker."""

import struct

import numpy as np
import pytest

import fluvial


def test_names_and_shapes_beyond_a_message_reach_every_worker():
    names = [f"layers.{i}." + "x" * 480 for i in range(10_000)] + [f"{i:03x}" for i in range(3_000)]  # 5 MB; and short ones
    model = {name: np.zeros(1, np.float32) for name in names}
    with fluvial.testing.LocalFederation(sites=2, aggregators=1) as local:
        run = local.start_run("long", model, rounds=2)

        def worker(site, index):
            for round in site.rounds("long"):
                arrays = round.arrays()
                assert list(arrays) == names
                round.submit({name: array + 1 for name, array in arrays.items()}, samples=1)

        local.train(worker)
        local.wait(run, timeout_s=300)
        committed = local.admin.model(run)
        assert list(committed) == names and {float(array[0]) for array in committed.values()} == {2.0}
        local.join()

        path = f"{local.folder}/longer.safetensors"
        with open(path, "wb") as file:
            header = b"{" + b" " * (17 << 20) + b"}"
            file.write(struct.pack("<Q", len(header)) + header)
        with pytest.raises(fluvial.FluvialError, match="names and shapes of its tensors take 17825794 bytes.*at most 16777216"):
            local.start_run("longer", path)


def test_a_file_whose_names_and_shapes_are_too_long_is_not_written(tmp_path):
    model = {f"{i}." + "x" * 500: np.zeros(0, np.float32) for i in range(33_000)}
    model["w"] = np.zeros(1, np.float32)
    with pytest.raises(fluvial.ModelMismatch, match="33001 tensors: their names and shapes take .* at most 16777216; give"):
        fluvial.save_model(str(tmp_path / "long.safetensors"), model)
    assert not list(tmp_path.iterdir())
