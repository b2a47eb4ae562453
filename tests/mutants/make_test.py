#!/usr/bin/env python3
"""What make.py makes of sources and catalogues."""

import unittest

import make
import mutants

FILE = "core/x/x.cc"


def mutant(name: str, place: str, slip: str, within: str = "") -> mutants.Mutant:
    return mutants.Mutant(name=name, breaks="a promise", file=FILE, place=place, slip=slip, within=within, source="x.toml")


def on(name: str) -> str:
    return f"::fluvial::mutants::is_on({mutant(name, 'x', '').number}u)"


def body(text: str, *those: mutants.Mutant) -> str:
    return make.mutate(text, FILE, list(those)).split("\n", 2)[2]


class Make(unittest.TestCase):
    def test_an_expression_becomes_a_choice(self):
        self.assertEqual(body("return a < b;\n", mutant("m", "a < b", "a <= b")),
                         f"return ({on('m')} ? (a <= b) : (a < b));\n")

    def test_a_statement_becomes_a_branch_and_may_be_left_out(self):
        self.assertEqual(body("if (x) f(); else g();\n", mutant("m", "f();", "")),
                         f"if (x) {{ if ({on('m')}) {{  }} else {{ f(); }} }} else g();\n")

    def test_a_value_in_braces_is_an_expression(self):
        self.assertEqual(body("a == T{1, 2};", mutant("m", "T{1, 2}", "T{}")), f"a == ({on('m')} ? (T{{}}) : (T{{1, 2}}));")

    def test_two_slips_of_one_place_and_one_within_another(self):
        self.assertEqual(body("f(a < b);", mutant("outer", "f(a < b);", ""), mutant("in", "a", "c"), mutant("in2", "a", "d")),
                         f"{{ if ({on('outer')}) {{  }} else "
                         f"{{ f(({on('in')} ? (c) : {on('in2')} ? (d) : (a)) < b); }} }}")

    def test_lines_stay_where_they_were(self):
        text = "a\n  < b\nc"
        made = make.mutate(text, FILE, [mutant("m", "a < b", "a\n<= b")])
        self.assertTrue(made.startswith('#include "tests/mutants/selected.h"\n#line 1 "core/x/x.cc"\n'))
        self.assertEqual(made.split("\n", 2)[2].count("\n"), text.count("\n"))

    def test_a_place_that_is_gone_or_there_twice_is_an_error_that_names_it(self):
        for text in ("return true;\n", "a < b; a < b;\n"):
            with self.assertRaisesRegex(mutants.CatalogueError, "x.toml: mutant 'm': expected once in core/x/x.cc"):
                body(text, mutant("m", "a < b", "true"))

    def test_a_text_around_it_tells_which_place(self):
        self.assertEqual(body("f(a); g(a);", mutant("m", "a", "b", within="g(a)")), f"f(a); g(({on('m')} ? (b) : (a)));")

    def test_places_do_not_overlap(self):
        with self.assertRaisesRegex(mutants.CatalogueError, "overlaps with 'one'"):
            body("a < b < c", mutant("one", "a < b", "x"), mutant("two", "b < c", "y"))


class Catalogue(unittest.TestCase):
    def test_what_is_no_mutant_is_an_error(self):
        good = 'breaks = "it"\nfile = "f.cc"\nplace = "a"\n'
        for text in ('[m]\n' + good, '[m]\n' + good + 'slip = "a"', '[M]\n' + good + 'slip = ""', 'm = 1',
                     '[m]\n' + good + 'slip = ""\nother = 1', '[m', '[m]\n' + good.replace("f.cc", "f.h") + 'slip = ""'):
            with self.assertRaises(mutants.CatalogueError, msg=text):
                mutants.parse(text, "x.toml")
        self.assertEqual(mutants.parse('[m]\n' + good + 'slip = ""', "x.toml")[0].name, "m")

    def test_every_room_has_its_share(self):
        known = mutants.load()
        rooms = {room: sum(m.room == room for m in known) for room in {m.room for m in known}}
        self.assertGreaterEqual(len(known), 60)
        self.assertLessEqual({"coordinator/logic", "aggregator/logic", "edge/logic", "core/round", "core/transfer",
                                      "core/store", "core/tree", "core/wire", "edge/update"}, set(rooms))
        self.assertGreaterEqual(min(rooms.values()), 6, rooms)


if __name__ == "__main__":
    unittest.main()
