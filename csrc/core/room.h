/* How much memory is left for this process. Asked before large allocations. */
#ifndef PYG_CORE_ROOM_H
#define PYG_CORE_ROOM_H

#include <stddef.h>

/* Bytes that can still be allocated: the least of MemAvailable and what each memory cgroup of the
 * process leaves, where the page cache that a group holds counts as free, since the kernel gives it
 * up first (a mapped model fills it). SIZE_MAX when nothing can be read. `root`: "", or a made-up
 * tree in tests. */
size_t pyg_memory_room_under(const char *root);

/* Of so many free bytes, those to take: a sixteenth and at most 256 MiB stay to the rest of the
 * machine, since what is allocated is written to at once. */
size_t pyg_room_to_use(size_t all);

#endif
