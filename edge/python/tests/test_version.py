"""The package has the version of the executable it is released with."""

import pathlib

import fluvial


def test_the_version_is_the_tree_s():
    version = (pathlib.Path(__file__).resolve().parents[3] / "VERSION").read_text().split()[0]
    assert fluvial.__version__ == version
