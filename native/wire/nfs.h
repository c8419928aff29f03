/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers of NFSv4.1 that C and BPF know: the operations of data, the statuses that the server answers with or looks at,
 * and what fstat knows of a file. All there are, with the same names, are in livedma.wire.nfs_numbers and
 * livedma.nfs.numbers; tests/wire/test_numbers.py compares. */
#ifndef LDMA_WIRE_NFS_H
#define LDMA_WIRE_NFS_H

enum { LDMA_NFS_PROGRAM = 100003, LDMA_NFS_VERSION = 4, LDMA_NFS_COMPOUND = 1 };

/* RFC 8881 15.1 */
enum ldma_nfs_status {
	LDMA_NFS_OK = 0,
	LDMA_NFS_IO = 5,
	LDMA_NFS_INVAL = 22,
	LDMA_NFS_FBIG = 27,
	LDMA_NFS_NOSPC = 28,
	LDMA_NFS_ROFS = 30,
	LDMA_NFS_DQUOT = 69,
	LDMA_NFS_STALE = 70,
	LDMA_NFS_SERVERFAULT = 10006,
	LDMA_NFS_DELAY = 10008,
	LDMA_NFS_GRACE = 10013,
	LDMA_NFS_BADSESSION = 10052,
	LDMA_NFS_BADSLOT = 10053,
	LDMA_NFS_SEQ_MISORDERED = 10063,
	LDMA_NFS_RETRY_UNCACHED_REP = 10068,
	LDMA_NFS_SEQ_FALSE_RETRY = 10076,
	LDMA_NFS_BAD_HIGH_SLOT = 10077,
};

/* RFC 8881 16.2.1 */
enum ldma_nfs_op {
	LDMA_NFS_OP_COMMIT = 5,
	LDMA_NFS_OP_GETATTR = 9,
	LDMA_NFS_OP_PUTFH = 22,
	LDMA_NFS_OP_READ = 25,
	LDMA_NFS_OP_WRITE = 38,
	LDMA_NFS_OP_BIND_CONN_TO_SESSION = 41,
	LDMA_NFS_OP_EXCHANGE_ID = 42,
	LDMA_NFS_OP_CREATE_SESSION = 43,
	LDMA_NFS_OP_DESTROY_SESSION = 44,
	LDMA_NFS_OP_SEQUENCE = 53,
	LDMA_NFS_OP_DESTROY_CLIENTID = 57,
};

/* RFC 8881 18.32: stable_how4 */
enum ldma_nfs_stable {
	LDMA_NFS_UNSTABLE = 0,
	LDMA_NFS_DATA_SYNC = 1,
	LDMA_NFS_FILE_SYNC = 2,
};

/* RFC 8881 5: bits of a bitmap4 */
enum ldma_nfs_attribute {
	LDMA_NFS_ATTR_TYPE = 1,
	LDMA_NFS_ATTR_CHANGE = 3,
	LDMA_NFS_ATTR_SIZE = 4,
	LDMA_NFS_ATTR_FILEID = 20,
	LDMA_NFS_ATTR_MODE = 33,
	LDMA_NFS_ATTR_NUMLINKS = 35,
	LDMA_NFS_ATTR_SPACE_USED = 45,
	LDMA_NFS_ATTR_TIME_ACCESS = 47,
	LDMA_NFS_ATTR_TIME_METADATA = 52,
	LDMA_NFS_ATTR_TIME_MODIFY = 53,
};

#endif
