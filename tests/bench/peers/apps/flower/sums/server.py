"""The server: Flower's FedAvg, with a mark when a round's mean is there."""

import os
import sys

import numpy
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

sys.path.insert(0, os.environ["FLUVIAL_PEERS"])
import work  # noqa: E402

app = ServerApp()


class Marked(FedAvg):
    def __init__(self, folder, **arguments):
        super().__init__(**arguments)
        self.folder = folder

    def aggregate_train(self, server_round, replies):
        mean = super().aggregate_train(server_round, replies)
        work.mark(self.folder)
        return mean


@app.main()
def main(grid, context):
    folder, sites = context.run_config["folder"], context.run_config["sites"]
    strategy = Marked(folder, fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=sites, min_available_nodes=sites)
    initial = ArrayRecord([numpy.load(os.path.join(folder, "initial.npy"))])
    result = strategy.start(grid=grid, initial_arrays=initial, num_rounds=context.run_config["rounds"])
    numpy.save(os.path.join(folder, "final.part.npy"), result.arrays.to_numpy_ndarrays()[0])
    os.rename(os.path.join(folder, "final.part.npy"), os.path.join(folder, "final.npy"))
