# SPDX-License-Identifier: BSD-2-Clause
"""Packets in Arrow's memory layout. `livedma.wire.columns` makes the schema and the arrays."""
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uintptr_t

from livedma._native.packet cimport ldma_batch, ldma_print_address
from livedma._native.wire cimport Batch

cdef extern from "capture/columns.h" nogil:
    int LDMA_COLUMN_COUNT, LDMA_COLUMNS_VERSION

    struct ldma_column_info:
        const char *name
        const char *arrow
        uint8_t bytes
        bint nullable
    const ldma_column_info *ldma_column_infos

    struct ldma_column_address:
        uint8_t bytes[16]
        uint8_t ip_version

    struct ldma_columns:
        uint32_t rows
        uint32_t capacity
        uint8_t **values
        uint8_t **validity
        int32_t *src
        int32_t *dst
        ldma_column_address *addresses
        uint32_t address_count
        int32_t *error_offsets
        uint8_t *error_validity
        char *error_text

    ldma_columns *ldma_columns_create(uint32_t capacity)
    void ldma_columns_destroy(ldma_columns *columns)
    void ldma_columns_reset(ldma_columns *columns)
    uint32_t ldma_columns_append(ldma_columns *columns, const ldma_batch *batch, uint32_t first)

VERSION = LDMA_COLUMNS_VERSION


def column_infos():
    """Returns [(name, Arrow type, bytes a value (0: a bit), nullable)] in order."""
    return [
        (
            ldma_column_infos[i].name.decode(),
            ldma_column_infos[i].arrow.decode(),
            ldma_column_infos[i].bytes,
            bool(ldma_column_infos[i].nullable),
        )
        for i in range(LDMA_COLUMN_COUNT)
    ]


# A freed set of columns, kept for the next user: sets are some megabytes each and are made by the thousand, so this
# saves the page faults of new ones. The GIL guards it.
cdef ldma_columns *spare = NULL


cdef class Columns:
    """Holds a set of rows, filled once. Arrow arrays over it keep it alive."""

    cdef ldma_columns *c

    def __cinit__(self, uint32_t capacity):
        global spare
        if spare != NULL and spare.capacity >= capacity:
            self.c = spare
            spare = NULL
            ldma_columns_reset(self.c)
        else:
            self.c = ldma_columns_create(capacity)
        if self.c == NULL:
            raise MemoryError

    def __dealloc__(self):
        global spare
        if spare == NULL:
            spare = self.c
        else:
            ldma_columns_destroy(self.c)

    def __len__(self):
        return self.c.rows

    @property
    def is_full(self):
        return self.c.rows >= self.c.capacity

    def append(self, Batch batch, uint32_t first=0):
        """Takes packets of the batch from `first` on; returns how many fitted."""
        with nogil:
            first = ldma_columns_append(self.c, batch.c, first)
        return first

    def column(self, int index):
        """Returns the addresses of a column's values and of its validity bitmap (0: never null)."""
        if not 0 <= index < LDMA_COLUMN_COUNT:
            raise IndexError(index)
        return <uintptr_t>self.c.values[index], <uintptr_t>self.c.validity[index]

    @property
    def src(self):
        return <uintptr_t>self.c.src

    @property
    def dst(self):
        return <uintptr_t>self.c.dst

    @property
    def errors(self):
        """Returns the addresses of the error column's validity, offsets and text, and the length of the text."""
        return (<uintptr_t>self.c.error_validity, <uintptr_t>self.c.error_offsets,
                <uintptr_t>self.c.error_text, self.c.error_offsets[self.c.rows])

    def addresses(self):
        """Returns the texts that src and dst are indexes of."""
        cdef char text[64]
        cdef size_t n
        found = []
        for i in range(self.c.address_count):
            n = ldma_print_address(self.c.addresses[i].bytes, self.c.addresses[i].ip_version, text)
            found.append(text[:n].decode())
        return found
