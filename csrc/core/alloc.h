/* Aligned allocation, the count of it, and the test hook that makes the n-th request fail. */
#ifndef PYG_CORE_ALLOC_H
#define PYG_CORE_ALLOC_H

#include <stddef.h>

#include "pyggml.h"

#define PYG_ALIGN 64

/* Rounds up to PYG_ALIGN; SIZE_MAX when that overflows. */
size_t pyg_align_up(size_t bytes);

/* 64-byte aligned, zeroed memory at *out (NULL for 0 bytes). PYG_STATUS_no_memory names `what`, the
 * bytes asked for and, when that is the reason, the bytes the machine and the cgroup have left. */
pyg_status pyg_alloc(void **out, size_t bytes, const char *what);

/* Frees what pyg_alloc gave; NULL is fine. */
void pyg_free(void *p);

/* Bytes that can still be allocated, by core/room.h. */
size_t pyg_memory_room(void);

#endif
