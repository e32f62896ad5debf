# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The four questions of the first minutes on a card, answered from what parts of
tests/gpu/run gave, as far as they are: does memory register, do copies keep their order,
do gradients agree, is the pinned memory of a program ours?
"""
import threading
import time

UNKNOWN = "not known yet"
SECONDS = 180
PIECE = "register a piece, "
PEER = "allocate a piece, cuMemHostAlloc"


def _registers(part):
    """By kind of memory, as probe.c names them: its speed, or the driver's error."""
    found = {figure["figure"].removeprefix(PIECE): f"{figure['value']:.2f} GB/s"
             for figure in part.get("figures", []) if figure["figure"].startswith(PIECE)}
    regions = any(kind.startswith("memfd") for kind in found)
    peer = [f"cuMemHostAlloc {figure['value']:.2f} GB/s"
            for figure in part.get("figures", []) if figure["figure"] == PEER]
    refused = {fact.removeprefix(PIECE): answer for fact, answer in part.get("facts", {}).items()
               if fact.startswith(PIECE)}
    told = [f"{kind} {answer}" for kind, answer in (found | refused).items()] + peer
    if not told or not regions and part["status"] == "unfinished":
        return _passes(part)
    return f"{'yes' if regions else 'no'}: {', '.join(told)}"


def _passes(part):
    """By the part's tests alone."""
    passed, failed = part.get("passed", 0), part.get("failed", [])
    if part["status"] == "unfinished":
        return UNKNOWN
    if failed or part["status"] == "failed":
        return f"no: {part.get('why', 'it failed')}"
    if not passed:
        return f"not known: {'; '.join(part.get('skipped', [])) or part.get('why', 'left out')}"
    return f"yes: {passed} tests"


QUESTIONS = {"registers?": ("probe", _registers), "ordered?": ("cuda", _passes),
             "agrees?": ("checkpoint", _passes), "intercepted?": ("pinned", _passes)}


class Answers:
    """Told when all four are known, and after three minutes as far as they are."""

    def __init__(self, results, seconds=SECONDS):
        self.results = results
        self.began = time.monotonic()
        self.parts, self.told, self.lock = {}, {}, threading.Lock()
        self.timer = threading.Timer(seconds, self.tell)
        self.timer.daemon = True
        self.timer.start()

    def answers(self):
        return {question: answer(self.parts[name]) if name in self.parts else UNKNOWN
                for question, (name, answer) in QUESTIONS.items()}

    def add(self, name, result):
        """Of a part, also while it runs."""
        self.parts[name] = result
        now = self.answers()
        if result["status"] != "unfinished" and UNKNOWN not in now.values() and now != self.told:
            self.end()

    def tell(self):
        with self.lock:
            now = self.answers()
            if now == self.told:
                return
            self.told = now
            print("\n".join([f"After {time.monotonic() - self.began:.0f} s:"] + [
                f"  {question:13} {answer}" for question, answer in now.items()]), flush=True)

    def end(self):
        """In the thread that writes results."""
        self.timer.cancel()
        if not any(name in self.parts for name, _ in QUESTIONS.values()):
            return
        self.tell()
        self.results.add("answers", {"status": "ok", "seconds": 0.0, "facts": self.told})
