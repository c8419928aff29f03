/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/pd.h"

#include <errno.h>
#include <stdlib.h>

struct ldma_pd *ldma_pd_create(void)
{
	return calloc(1, sizeof(struct ldma_pd));
}

int ldma_pd_destroy(struct ldma_pd *pd)
{
	if (pd && __atomic_load_n(&pd->users, __ATOMIC_ACQUIRE))
		return -EBUSY;
	free(pd);
	return 0;
}
