#!/usr/bin/env python3
"""What ./dev bench peers counts and prints, on made-up samples. Run by CTest as bench:peers."""

import unittest
import xml.dom.minidom

import catalogue
import figures
import peers
import plot
import processes
import report


def sample(moment, server, site, owned=0, moved=0):
    return (moment, {"server": server, "site": site, "bench": 99.0}, owned + 5, owned, moved)


class Figures(unittest.TestCase):
    def test_the_first_round_is_dropped_and_the_rest_is_shared_among_rounds(self):
        samples = [sample(0, 100, 100, 900, 10**6), sample(10, 101, 103, 50, 10**6), sample(14, 105, 111, 70, 10**6 + 400)]
        found = figures.figures(samples, [10, 12, 14], True)
        self.assertEqual(found["round_seconds"], [2, 2])
        self.assertAlmostEqual(found["server_cpu_seconds"], 2)  # 4 s in two rounds
        self.assertAlmostEqual(found["all_cpu_seconds"], 6)  # and 8 s of sites; the bench's own are not counted
        self.assertEqual(found["server_memory_bytes"], 70)  # 900 was before the first mark
        self.assertAlmostEqual(found["bytes"], 200)

    def test_marks_between_samples_are_interpolated(self):
        samples = [sample(0, 0, 0), sample(10, 10, 0)]
        self.assertAlmostEqual(figures.figures(samples, [2, 4, 8], True)["server_cpu_seconds"], 3)

    def test_what_samples_cannot_tell_is_left_out(self):
        samples = [sample(0, 0, 0), sample(1, 1, 1)]
        found = figures.figures(samples, [0.1, 0.2, 0.3], True)
        self.assertIsNone(found["server_cpu_seconds"])
        self.assertIsNone(found["bytes"])
        self.assertAlmostEqual(found["round_seconds_median"], 0.1)

    def test_without_a_server_nothing_is_said_of_one(self):
        found = figures.figures([sample(0, 0, 0), sample(9, 9, 9)], [1, 5, 9], False)
        self.assertIsNone(found["server_cpu_seconds"])
        self.assertIsNone(found["server_memory_bytes"])
        self.assertAlmostEqual(found["all_cpu_seconds"], 2 * 8 / 2)

    def test_one_round_is_too_few(self):
        self.assertIn("reason", figures.figures([sample(0, 0, 0)], [1], True))


class Processes(unittest.TestCase):
    def test_a_role_is_inherited_or_seen_from_the_subcommand(self):
        self.assertEqual(processes.role_of(b"A=1\0FLUVIAL_ROLE=site\0", b"python\0x\0"), "site")
        self.assertEqual(processes.role_of(b"A=1\0", b"/bin/fluvial\0coordinator\0--config\0"), "server")
        self.assertEqual(processes.role_of(b"", b"/bin/fluvial\0bench-worker\0"), "site")
        self.assertEqual(processes.role_of(b"", b"/bin/fluvial\0bench\0tree\0"), "bench")
        self.assertEqual(processes.role_of(b"", b""), "bench")

    def test_times_of_a_name_with_blanks_and_brackets(self):
        fields = ["S"] + ["0"] * 10 + ["100", "20", "3", "4"] + ["0"] * 10
        self.assertAlmostEqual(processes.cpu_of(b"7 (a) b) " + " ".join(fields).encode()), 127 * processes._TICK)

    def test_memory_is_anonymous_and_shared_pages(self):
        status = b"Name:\tx\nVmRSS:\t  30 kB\nRssAnon:\t 10 kB\nRssFile:\t 15 kB\nRssShmem:\t 5 kB\n"
        self.assertEqual(processes.memory_of(status), (30 * 1024, 15 * 1024))


class Report(unittest.TestCase):
    def document(self):
        row = {"round_seconds_median": 1.0, "server_cpu_seconds": 0.5, "all_cpu_seconds": 1.5, "server_memory_bytes": 2e8,
               "bytes": 3e8, "checked": True, "sites": 4, "params": 10**6, "round_seconds": [2.0, 3.0, 5.0]}
        return {"measurements": [{"peer": "fluvial", **row}, {"peer": "fluvial", **row, "round_seconds_median": 3.0},
                                 {"peer": "mpi", "sites": 4, "params": 10**6, "reason": "it stopped"}],
                "not_run": {"flower": "no network"}, "rounds": 3, "line_bits_per_s": 0,
                "titles": {name: [peer.title, peer.security] for name, peer in catalogue.PEERS.items()}}

    def test_a_row_has_medians_and_range_failures_and_what_was_not_run(self):
        table = report.table(self.document())
        self.assertIn("| 2 s (1 to 3) | 0.5 | 1.5 | 200 MB | 300.0 MB |", table)
        self.assertIn("failed: it stopped", table)
        self.assertIn("not run: no network", table)
        widths = {line.count("|") for line in table.splitlines() if line.startswith("|")}
        self.assertEqual(len(widths), 1)

    def test_on_a_line_a_row_says_how_much_of_it_was_used(self):
        table = report.table(self.document() | {"line_bits_per_s": 10**9})
        self.assertIn("one line of 1 Gbit/s for all", table)
        self.assertIn("| 300.0 MB | 0.72 |", table)  # 2.4 Gbit a round, which takes 10/3 s in the mean
        self.assertNotIn("of the line", report.table(self.document()))
        widths = {line.count("|") for line in table.splitlines() if line.startswith("|")}
        self.assertEqual(len(widths), 1)

    def test_a_plot_is_xml_with_its_longest_bar_full(self):
        drawn = plot.bars("a < b", [("x & y", 2.0, "2"), ("z", 1.0, "1")])
        rectangles = xml.dom.minidom.parseString(drawn).getElementsByTagName("rect")
        self.assertEqual([float(r.getAttribute("width")) for r in rectangles], [420.0, 210.0])


class Arguments(unittest.TestCase):
    def test_numbers_as_people_write_them(self):
        self.assertEqual(peers.numbers("1M,10m,7,100K"), [10**6, 10**7, 7, 10**5])
        for wrong in ("", "M", "0", "1X", "-1"):
            self.assertRaises(Exception, peers.number, wrong)

    def test_quick_peers_take_more_rounds(self):
        peer = catalogue.Peer("a", "b", "c", None, rounds_per_s=10)
        self.assertEqual([peer.rounds(6, params) for params in (10**4, 10**6, 10**7, 10**8)], [400, 30, 6, 6])
        self.assertEqual(catalogue.PEERS["flower"].rounds(6, 10**5), 6)

    def test_each_codec_is_a_row_of_fluvial(self):
        rows = catalogue.fluvial_with(["fp32", "topk:ratio=0.01/delta:int8"])
        self.assertEqual(list(rows)[:3], ["fluvial", "fluvial topk:ratio=0.01/delta:int8", "flower"])
        self.assertEqual([rows["fluvial"].settings[key] for key in ("codec", "down")], ["fp32", ""])
        second = rows["fluvial topk:ratio=0.01/delta:int8"]
        self.assertEqual(second.title, "Fluvial, topk:ratio=0.01 up, delta:int8 down")
        self.assertEqual([second.settings[key] for key in ("codec", "down")], ["topk:ratio=0.01", "delta:int8"])

    def test_names_are_known(self):
        self.assertEqual(peers.names("grpc,fluvial"), ["grpc", "fluvial"])
        self.assertRaises(Exception, peers.names, "grpc,nobody")
        self.assertEqual(next(iter(catalogue.PEERS)), "fluvial")  # plots draw the first darker


if __name__ == "__main__":
    unittest.main()
