# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Runs the commands of one part of tests/gpu/run, one after the other, each for a limited
time, and takes down what they print."""
import os
import subprocess
import time

import machine
import processes
import report

WRITE_SECONDS = 2       # how often what came meanwhile is handed over


def _why(name, status, good):
    if status < 0:
        return f"{name}: killed by signal {-status}"
    return None if status in good else f"{name}: exit status {status}"


def run_command(command, log, output, seconds, mark, tell):
    """Why it failed, or None; tell() after each time that it printed something."""
    log.write(f"$ {' '.join(command.argv)}\n")
    log.flush()
    output.prefix = command.prefix
    began = told = time.monotonic()
    try:
        process = subprocess.Popen(
            command.argv, cwd=machine.TREE,
            env={**os.environ, **command.environment, processes.MARK: mark},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, process_group=0)
    except OSError as error:
        return f"{command.name}: {error}"

    def end():
        return processes.end(lambda: processes.left(os.getpid(), mark), process)

    rest, ended, reason = b"", None, None
    try:
        os.set_blocking(process.stdout.fileno(), False)
        while True:
            data = process.stdout.read() or b""
            log.write(data.decode(errors="replace"))
            log.flush()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                output.take(line.decode(errors="replace") + "\n")
            if lines and time.monotonic() - told > WRITE_SECONDS:
                tell()
                told = time.monotonic()
            if ended is not None or reason:
                break
            ended = process.poll()
            if ended is None and time.monotonic() - began > seconds:
                reason = f"{command.name}: not done in {seconds:.0f} s"
                end()
            elif ended is None:
                time.sleep(0.05)
    finally:
        still = end()
        process.stdout.close()
    if rest:
        output.take(rest.decode(errors="replace"))
    reason = reason or _why(command.name, ended, command.good)
    if still:
        reason = f"{reason or command.name}; cannot be ended: process {min(still)}"
    return reason


def _result(output, reasons, seconds):
    failed = reasons or output.failed
    result = {"status": "failed" if failed else "ok", "seconds": seconds, **output.as_dict()}
    if failed:
        result["why"] = "; ".join(reasons + output.failed)[:300]
        result["tail"] = output.tail()
    return result


def run_part(part, context, seconds, log_path, mark="", add=lambda result: None):
    """Its result, whatever happens; add() gets what there is of it, again and again."""
    began = time.monotonic()
    output, reasons = report.Output(), []

    def tell():
        add({**_result(output, reasons, time.monotonic() - began), "status": "unfinished",
             "why": "it was running when this was written"})

    with open(log_path, "w", encoding="utf-8") as log:
        try:
            commands = part.commands(context, seconds)
        except machine.Missing as missing:
            return {"status": "left out", "seconds": 0.0, "why": str(missing)}
        except Exception as error:  # pylint: disable=broad-exception-caught
            return {"status": "failed", "seconds": 0.0, "why": f"{type(error).__name__}: {error}"}
        try:
            tell()
            for command in commands:
                left = seconds - (time.monotonic() - began)
                if left < 1:
                    reasons.append(f"{command.name}: no time left")
                    continue
                reason = run_command(command, log, output, min(left, command.seconds), mark, tell)
                if reason:
                    reasons.append(reason)
                    log.write(f"# {reason}\n")
        except SystemExit:          # by a signal
            tell()
            raise
    if part.after:
        try:
            part.after(context, output)
        except Exception as error:  # pylint: disable=broad-exception-caught
            reasons.append(f"{part.name}: {type(error).__name__}: {error}")
    return _result(output, reasons, time.monotonic() - began)
