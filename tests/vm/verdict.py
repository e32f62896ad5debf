# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Judges a boot by the machine's own report and by the kernel's log."""
import re
import sys

MARKER = re.compile(r"actmem-vm: (begin|end) (-?\d+)")
COMPLAINT = re.compile("|".join((
    r"WARNING:", r"\bBUG\b", r"\bOops\b", r"Kernel panic", r"cut here",
    r"general protection fault", r"page fault for address", r"Call Trace:",
    r"\bKASAN\b", r"\bUBSAN\b", r"\bKCSAN\b", r"\bKFENCE\b", r"Bad page",
    r"Bad rss-counter", r"refcount_t:", r"list_(add|del) corruption",
    r"INFO: (possible|task|rcu|lockdep|trying|inconsistent)", r"possible .*deadlock",
    r"suspicious RCU", r"lockdep:", r"soft lockup", r"hard LOCKUP", r"hung_task",
    r"blocked for more than", r"rcu_\w+ detected", r"sleeping function",
    r"scheduling while atomic", r"unreferenced object", r"memory leak(?! detector initialized)",
    r"ODEBUG", r"DMA-API:.*(error|leak|warn)", r"Unable to handle",
    r"page dumped because", r"stack-protector:", r"double free")))
# Tainted by a machine check, a bad page, an oops, a warning, a soft lockup.
TAINTED = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 9 | 1 << 14
# Less than a huge page. The kernel uses up to 1.8 MiB that it does not report.
# KASAN keeps freed objects, up to a 32nd of the memory; page_owner counts pages there.
LOST_KIB = 15 << 7
LOST_KIB_STRICT = 192 << 10
# What the detectors of a kernel say when they begin, and what is reported at the end.
DETECTORS = {
    "strict": ("KernelAddressSanitizer initialized", "Lock dependency validator",
               "Kernel memory leak detector initialized"),
    "kcsan": ("kcsan: enabled early", "Lock dependency validator"),
}
WATCHED = {"strict": ("lockdep", "leaks", "pages"), "kcsan": ("lockdep", "pages")}
RACE = "BUG: KCSAN: "
RACE_END = "====="
ACCESS = re.compile(r"\b(read|write|read-write)\b.* to 0x")
# An access is the module's if the function that made it or its caller is.
NEAR = 2
# Atomic changes of a page's flags, such as its lock. They race with the kernel's plain reads of the
# bits that tell the page's node, which never change. The machines boot with nokaslr.
FLAGS = re.compile(r"\(marked\) to 0x(ffffea[0-9a-f]{10}) ")
PAGE_STRUCT_BYTES = 64
BEFORE, AFTER = -2, -1
# Exit status that no program of ours uses.
BROKEN = 125


class Verdict:
    def __init__(self, names, token, folder, hung, kernel):
        self.names = names
        self.lost_kib = LOST_KIB_STRICT if kernel in DETECTORS else LOST_KIB
        self.races_elsewhere = 0
        self.told = set()
        self.outcome = {}
        self.wrong = {}
        self.token_seen = False
        self.read_report(f"{folder}/report", token)
        self.read_log(f"{folder}/log")
        if hung:
            self.complain(self.last_begun(), hung)
        elif not self.token_seen:
            self.complain(self.last_begun(), "the machine stopped before its end")
        elif kernel in DETECTORS:
            self.check_detectors(kernel)

    def complain(self, number, text):
        if not -1 <= number < len(self.names):
            number = BEFORE
        self.wrong.setdefault(number, []).append(text)

    def last_begun(self):
        for number in range(len(self.names)):
            if number not in self.outcome:
                return number if number in self.begun else BEFORE
        return AFTER

    def check_detectors(self, kernel):
        for words in DETECTORS[kernel]:
            if not any(words in line for line in self.log):
                self.complain(BEFORE, f"a detector is missing: no line '{words}' in the log")
        for word in WATCHED[kernel]:
            if word not in self.told:
                self.complain(AFTER, f"a detector is missing: no result of '{word}'")

    def read_report(self, path, token):
        self.begun = set()
        with open(path, encoding="utf-8", errors="replace") as report:
            lines = report.read().split("\n")[:-1]
        for line in lines:
            word, *values = line.split(" ")
            self.told.add(word)
            if word == "begin":
                self.begun.add(int(values[0]))
            elif word == "end":
                self.outcome[int(values[0])] = (values[1], int(values[2]))
            elif word == "counter":
                self.complain(int(values[0]),
                              f"{values[2]} is {values[1]} after it, not 0")
            elif word == "unload" and values[0] != "0":
                self.complain(AFTER, f"the module cannot be unloaded: errno {values[0]}")
            elif word == "lost" and int(values[0]) > self.lost_kib:
                self.complain(AFTER, f"{values[0]} KiB of memory are lost")
            elif word == "tainted" and int(values[0]) & TAINTED:
                self.complain(AFTER, f"the kernel is tainted: {values[0]}")
            elif word == "leaks" and values[0] != "0":
                self.complain(AFTER, f"{values[0]} objects are leaked")
            elif word == "pages" and values[0] != "0":
                self.complain(AFTER, f"{values[0]} pages are leaked")
            elif word == "lockdep" and values[0] != "1":
                self.complain(AFTER, "lockdep turned itself off")
            elif word == "error":
                self.complain(BEFORE, " ".join(values))
            elif word == "done" and values == [token]:
                self.token_seen = True

    def read_log(self, path):
        number = BEFORE
        marked = set()
        with open(path, encoding="utf-8", errors="replace") as log:
            self.log = log.read().replace("\r", "").split("\n")
        for line in self.without_races_elsewhere():
            marker = MARKER.search(line)
            if marker:
                marked.add(int(marker[2]))
                number = int(marker[2]) if marker[1] == "begin" else AFTER
            elif COMPLAINT.search(line):
                self.complain(number, f"kernel log: {line.strip()}")
        for number in self.begun - marked:
            self.complain(number, "its marker is missing from the kernel log")

    @staticmethod
    def can_race(line):
        """Whether a line tells of an access that must not race if it is the module's."""
        flags = FLAGS.search(line)
        return ACCESS.search(line) and not (flags and int(flags[1], 16) % PAGE_STRUCT_BYTES == 0)

    def without_races_elsewhere(self):
        """The log's lines without KCSAN's reports of accesses that the module did not make: the
        kernel has races of its own."""
        race = None
        for line in self.log:
            if race is None:
                if RACE not in line:
                    yield line
                    continue
                race = []
            race.append(line)
            if RACE_END in line:
                if any("[actmem]" in part for i, line in enumerate(race) if self.can_race(line)
                       for part in race[i + 1:i + 1 + NEAR]):
                    yield from race
                else:
                    yield from filter(MARKER.search, race)
                    self.races_elsewhere += 1
                race = None
        yield from race or ()

    def program_wrong(self, number):
        kind, value = self.outcome.get(number, ("missing", 0))
        words = {"exit": f"exit status {value}", "signal": f"killed by signal {value}",
                 "timeout": f"still running after {value} s",
                 "stuck": "processes that cannot be killed",
                 "error": f"cannot be started: errno {value}",
                 "missing": "did not end"}[kind]
        wrong = [] if (kind, value) == ("exit", 0) else [words]
        return wrong + self.wrong.get(number, [])

    def tell(self, machine, tap):
        results = [(f"{machine}: {name}", self.program_wrong(number))
                   for number, name in enumerate(self.names)]
        results.append((f"{machine}: boot and unload",
                        self.wrong.get(BEFORE, []) + self.wrong.get(AFTER, [])))
        for name, wrong in results:
            if tap:
                print(f"{'not ok' if wrong else 'ok'} - {name}")
            for text in wrong:
                print(f"# {text}" if tap else f"vm: {name}: {text}",
                      file=sys.stdout if tap else sys.stderr)
        if self.races_elsewhere and tap:
            print(f"# {self.races_elsewhere} data races in the kernel itself do not count")
        if any(wrong for _, wrong in results) and not self.token_seen:
            for line in self.log[-40:]:
                print(f"# | {line}", file=sys.stdout if tap else sys.stderr)
        sys.stdout.flush()

    def status(self):
        if self.wrong or not self.token_seen:
            return BROKEN
        statuses = {self.outcome.get(n, ("missing", 0)) for n in range(len(self.names))}
        if statuses == {("exit", 0)}:
            return 0
        if len(self.names) == 1 and self.outcome[0][0] == "exit":
            return self.outcome[0][1]
        return 1
