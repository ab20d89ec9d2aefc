/* Turns: jobs of the pool run one at a time, first come, first served. For pool.c alone. */
#ifndef PYG_THREAD_TURNS_H
#define PYG_THREAD_TURNS_H

#include "pyggml.h"

/* Waits for the turn. While it waits it calls poll (may be NULL) every PYG_POLL_NS, which may take
 * turns itself: what waits is out of the queue meanwhile, and keeps its place. PYG_STATUS_cancelled
 * when poll returns other than 0; there is no turn then. */
pyg_status pyg_turn_begin(pyg_poll_fn poll, void *poll_ctx);

void pyg_turn_end(void);

/* In a forked child nobody waits and nobody has the turn. */
void pyg_turns_after_fork(void);

#endif
