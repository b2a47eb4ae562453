"""A site: Flower's ClientApp. Its work is drivers/work.py, found through the environment."""

import os
import sys

from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.app import Message
from flwr.clientapp import ClientApp

sys.path.insert(0, os.environ["FLUVIAL_PEERS"])
import work  # noqa: E402

app = ClientApp()


@app.train()
def train(message, context):
    model = message.content["arrays"].to_numpy_ndarrays()[0]
    round_number = message.content["config"]["server-round"]
    local = work.update(context.run_config["folder"], context.node_config["site"], round_number, model)
    reply = RecordDict({"arrays": ArrayRecord([local]), "metrics": MetricRecord({"num-examples": 1})})
    return Message(content=reply, reply_to=message)
