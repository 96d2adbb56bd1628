"""Several locks as one, which an interrupt never leaves half acquired.

Python raises KeyboardInterrupt between bytecode instructions. There are none here: it can occur
only while waiting for a lock, and then that lock has not been acquired. Python 3.14 also raises it
when `__enter__` has returned, but the with statement does not yet call `__exit__`; the context is
then dropped, which releases its locks, too.
"""

cimport cython


@cython.no_gc_clear
cdef class Held:
    """A context that holds locks, to be entered where it is made.

    Ordering the locks would not prevent deadlocks, because other threads may already hold some and
    acquire more in another order. So a lock is waited for only while none of the others is held.

    Parameters
    ----------
    locks : list of threading.RLock
    """

    cdef list locks
    cdef int entered

    def __init__(self, locks):
        self.locks = list(locks)

    def __enter__(self):
        cdef list locks = self.locks
        cdef Py_ssize_t n = len(locks), first = 0, held
        while n:
            locks[first].acquire()
            held = 1
            try:
                while held < n and locks[(first + held) % n].acquire(False):
                    held += 1
            except BaseException:
                self._release(first, held)
                raise
            if held == n:
                break
            self._release(first, held)
            first = (first + held) % n      # wait for the lock that was not free
        self.entered += 1
        return self

    def __exit__(self, *error):
        self.entered -= 1
        self._release(0, len(self.locks))

    def __dealloc__(self):
        while self.entered > 0:     # below 0 where it was only left
            self.entered -= 1
            self._release(0, len(self.locks))

    cdef int _release(self, Py_ssize_t first, Py_ssize_t held) except -1:
        cdef Py_ssize_t n = len(self.locks), k
        for k in range(held):
            self.locks[(first + k) % n].release()
        return 0
