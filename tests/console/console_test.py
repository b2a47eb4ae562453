"""The console in headless Chromium: its page against stand-ins, its door over real sockets, all of it against a real federation.

usage: console_test.py BIN_FOLDER [--record] [NAME...]

--record writes the documentation's pictures (docs/images/console-*.png); NAME: these checks alone.
"""

import pathlib
import sys
import time

import browser
import door_checks
import federation_checks
import operator_checks
import page_checks
from federation import Federation

SKIPPED = 77


def main():
    arguments = sys.argv[1:]
    record = "--record" in arguments
    bin_folder, *names = [argument for argument in arguments if argument != "--record"]
    executable = browser.find()
    if executable is None:
        print("SKIPPED: no Chromium here, so nobody has looked at the console (./dev install --deploy installs it)")
        return SKIPPED
    if record:
        names += ["follows_a_run"]
    wanted = lambda check: not names or check.__name__ in names

    def carry_out(check, *given):
        if not wanted(check):
            return
        begun = time.monotonic()
        check(*given)
        print(f"ok {check.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)

    chromium = browser.Browser(executable)
    try:
        for check in page_checks.CHECKS:
            carry_out(check, chromium)
        if not any(map(wanted, door_checks.CHECKS + operator_checks.CHECKS + federation_checks.CHECKS)):
            return 0
        with Federation(pathlib.Path(bin_folder)) as federation:
            federation.start()
            federation.wait_connected()
            for check in federation_checks.CHECKS[:1]:
                carry_out(check, federation, chromium, federation_checks.Pictures(record))
            if not record:
                for check in door_checks.CHECKS:
                    carry_out(check, federation)
                for check in operator_checks.CHECKS:
                    carry_out(check, federation, chromium)
            for check in federation_checks.CHECKS[1:]:
                carry_out(check, federation, chromium, None)
    finally:
        chromium.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
