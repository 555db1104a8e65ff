"""Redirects connections from port 6379 to the server under test, so that programs with this fixed port run unchanged.

Python imports this module automatically at start-up if its folder is on PYTHONPATH.
"""

import os
import socket

USUAL_PORT = 6379


def install():
    port = int(os.environ["MILLSTREAM_TEST_PORT"])
    connect = socket.socket.connect

    def redirected(self, address):
        if isinstance(address, tuple) and address[1] == USUAL_PORT:
            address = (address[0], port, *address[2:])
        return connect(self, address)

    socket.socket.connect = redirected


install()
