"""Ctrl-C: a run stops between two nodes, and the program runs again afterwards."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, signal, threading, time
import numpy as np
import pyggml as pg

g = pg.Graph()
x = node = g.input("x", (128, 128))
for _ in range(NODES):
    node = pg.ops.rms_norm(pg.ops.mul_mat(x, node))
program = g.compile(node, threads=2)
short = g.compile(g.nodes()[6], threads=2)
feed = np.eye(128, dtype=np.float32)
expected = short(x=feed)

INSTALL
sent = []
def send():
    time.sleep(0.3)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=send, daemon=True).start()
try:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        program(x=feed)
except EXPECTED as e:
    late = time.monotonic() - sent[0]
    print("stopped", type(e).__name__, late < 5)
assert np.array_equal(short(x=feed), expected)
program(x=feed)
print("runs again")
"""


def run(**words: str) -> str:
    script = SCRIPT
    for word, text in words.items():
        script = script.replace(word, text)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_keyboard_interrupt() -> None:
    """The runs would go on for far longer than the wait for them to stop."""
    out = run(NODES="20000", SECONDS="60", INSTALL="", EXPECTED="KeyboardInterrupt")
    assert out == "stopped KeyboardInterrupt True\nruns again\n"


def test_what_a_handler_raises_comes_out() -> None:
    install = (
        "class Stop(Exception): pass\n"
        "def handler(*_): raise Stop\n"
        "signal.signal(signal.SIGINT, handler)"
    )
    out = run(NODES="5000", SECONDS="60", INSTALL=install, EXPECTED="Stop")
    assert out == "stopped Stop True\nruns again\n"


def test_a_handler_that_returns_stops_nothing() -> None:
    install = "count = []\nsignal.signal(signal.SIGINT, lambda *_: count.append(1))"
    out = run(NODES="300", SECONDS="1", INSTALL=install, EXPECTED="KeyboardInterrupt")
    assert out == "runs again\n"
