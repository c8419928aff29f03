# SPDX-License-Identifier: BSD-2-Clause
"""Lets pools that C code uses grow when a call waits for their buffers."""

from __future__ import annotations

import os
import selectors
import sys
import threading

from livedma.memory import Pool, PoolClosed

__all__ = ["PoolKeeper"]

_LOOK_S = 0.5  # how often the thread looks whether it has to end


class PoolKeeper:
    """Runs one thread that lets all connections' pools grow when C code waits for a buffer."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._is_closed = False
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="livedma-rpc-keeper", daemon=True)
        self._thread.start()

    def add(self, pool: Pool) -> None:
        descriptor = pool.listen_for_calls()
        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, selectors.EVENT_READ, pool)
        os.eventfd_write(descriptor, 1)  # the pool may have called before it was registered

    def remove(self, pool: Pool) -> None:
        """Takes a pool away: the thread does not touch it any more."""
        with self._lock:
            self._selector.unregister(pool.listen_for_calls())

    def close(self) -> None:
        self._is_closed = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._selector.close()
        os.close(self._wake)

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select(_LOOK_S):
                with self._lock:
                    if key.data is not None and key.fileobj in self._selector.get_map():
                        self._tend(key.fd, key.data)

    def _tend(self, descriptor: int, pool: Pool) -> None:
        try:
            os.eventfd_read(descriptor)
            pool.tend()
        except (BlockingIOError, PoolClosed):
            pass
        except Exception:  # from the pool's source: reported, and other pools are still served
            _tell()


def _tell() -> None:
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
