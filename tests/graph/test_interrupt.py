"""Ctrl-C: a run stops between two nodes, and the program runs again afterwards."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, signal, sys, threading, time
import numpy as np
import pyggml as pg

g = pg.Graph()
x = node = g.input("x", (SIZE, SIZE))
for _ in range(NODES):
    node = pg.ops.rms_norm(pg.ops.mul_mat(x, node))
program = g.compile(node, threads=2)
short = g.compile(g.nodes()[6], threads=2)
feed = np.eye(SIZE, dtype=np.float32)
expected = short(x=feed)

INSTALL
def send():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)

for again in range(2):
    out = np.full((SIZE, SIZE), 7, np.float32)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        program(x=feed, out=out)
        while sender.is_alive():
            program(x=feed, out=out)
    except EXPECTED as e:
        print("stopped", type(e).__name__, bool((out == 7).all()))
    sender.join()
    assert np.array_equal(short(x=feed), expected)
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
    """The run would take many seconds more; had it gone on to its end, `out` would be filled."""
    out = run(SIZE="640", NODES="2500", INSTALL="", EXPECTED="KeyboardInterrupt")
    assert out == "stopped KeyboardInterrupt True\n" * 2 + "runs again\n"


def test_what_a_handler_raises_comes_out() -> None:
    install = (
        "class Stop(Exception): pass\n"
        "def handler(*_): raise Stop\n"
        "signal.signal(signal.SIGINT, handler)"
    )
    out = run(SIZE="640", NODES="2500", INSTALL=install, EXPECTED="Stop")
    assert out == "stopped Stop True\n" * 2 + "runs again\n"


def test_a_handler_that_returns_stops_nothing() -> None:
    install = "count = []\nsignal.signal(signal.SIGINT, lambda *_: count.append(1))"
    out = run(SIZE="128", NODES="300", INSTALL=install, EXPECTED="KeyboardInterrupt")
    assert out == "runs again\n"


def test_a_handler_runs_programs_of_its_own() -> None:
    """While a run of its thread is under way: another program runs, the running one is refused."""
    install = (
        "def handler(*_):\n"
        "    assert np.array_equal(short(x=feed), expected)\n"
        "    try:\n"
        "        program(x=feed)\n"
        "    except pg.GraphError as e:\n"
        "        raise RuntimeError(e) from None\n"
        "signal.signal(signal.SIGINT, handler)"
    )
    out = run(SIZE="640", NODES="2500", INSTALL=install, EXPECTED="RuntimeError")
    assert out == "stopped RuntimeError True\n" * 2 + "runs again\n"


def test_a_run_that_waits_for_its_turn() -> None:
    """One node of another thread's program takes long; who waits for it is interrupted at once."""
    install = (
        "g2 = pg.Graph()\n"
        "long = g2.compile(pg.ops.mul_mat(*[g2.const(np.ones((6000, 6000), np.float32))] * 2))\n"
        "other = threading.Thread(target=long)\n"
        "other.start()\n"
        "time.sleep(0.1)\n"
        "sender = threading.Thread(target=lambda: (time.sleep(0.1), os.kill(os.getpid(), 2)))\n"
        "sender.start()\n"
        "try:\n"
        "    short(x=feed)\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped', other.is_alive())\n"
        "other.join()\n"
        "sys.exit()\n"
    )
    out = run(SIZE="64", NODES="10", INSTALL=install, EXPECTED="RuntimeError")
    assert out == "stopped True\n"


BUILDING = """
import os, random, signal, threading
import pyggml as pg

class Stop(Exception): pass

armed = False
def handler(*_):
    global armed
    if armed:
        armed = False
        raise Stop

signal.signal(signal.SIGALRM, handler)
random.seed(1)
g = pg.Graph()
x = g.input("x", (16,))
pg.ops.matmul(x, [[1.0]] * 16)
stopped = 0
while stopped < 1500:
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1e-3))
        while armed:
            x + [1] * 16
            pg.ops.matmul(x, [[1.0]] * 16) ** 3
    except Stop:
        stopped += 1
other = threading.Thread(target=lambda: print(g.compile(x + 1.0)(x=[1] * 16)[0]), daemon=True)
other.start()
other.join(60)
print("hangs" if other.is_alive() else "ended", flush=True)
os._exit(0)
"""


def test_interrupts_while_a_graph_is_built() -> None:
    """The graph's lock is given back wherever the exception comes."""
    command = [sys.executable, "-c", BUILDING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "2.0\nended\n", done.stdout + done.stderr
