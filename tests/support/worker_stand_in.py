"""Stands in for a worker, in a process that the supervisor starts: does what STAND_IN names, by the worker's number.

`serves` until SIGTERM, `stays` in spite of it, `fails` with exit code 2 before it serves, `dies` with exit code 7 once
it does, and `crashes` by SIGSEGV before.
"""

import json
import os
import signal
import socket
import sys

ROLE = json.loads(sys.argv[1])
DOES = json.loads(os.environ["STAND_IN"])[str(ROLE["number"])]
if DOES == "stays":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if DOES == "fails":
    sys.exit(2)
if DOES == "crashes":
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
supervisor = socket.socket(fileno=os.dup(0))
supervisor.send(b"1")
if DOES == "dies":
    sys.exit(7)
supervisor.recv(1)
