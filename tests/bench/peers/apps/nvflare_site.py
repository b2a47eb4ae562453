"""A site of NVIDIA FLARE: its Client API in a loop. Given the work folder, and where drivers/work.py is."""

import sys

import nvflare.client as flare


def main():
    folder, drivers = sys.argv[1:3]
    sys.path.insert(0, drivers)
    import work

    flare.init()
    site = int(flare.get_site_name().rpartition("-")[2]) - 1
    while flare.is_running():
        received = flare.receive()
        name, model = next(iter(received.params.items()))
        local = work.update(folder, site, received.current_round + 1, model)
        flare.send(flare.FLModel(params={name: local}, params_type="FULL", meta={"NUM_STEPS_CURRENT_ROUND": 1}))


main()
