/* The thread pool: one per process, used by one job at a time.
 *
 * A job is bracketed by pyg_pool_begin / pyg_pool_end; inside it pyg_pool_run is called once per
 * parallel step (hundreds a decode step). Workers spin between the steps of a job and for a short
 * while after it, then park on a futex. Worker 0 is the calling thread.
 *
 * Task i of n always runs, exactly once; worker w takes the contiguous range [w*n/W, (w+1)*n/W).
 * Tasks never fail. Each thread runs a job with MXCSR set for denormals (FTZ and DAZ off, round to
 * nearest) and restores what it found. Nothing here allocates after pyg_pool_reserve.
 *
 * After fork() the child has no pool; its first begin builds one. If fork happens while another
 * thread of the parent runs a job, the child starts with a free pool. */
#ifndef PYG_THREAD_POOL_H
#define PYG_THREAD_POOL_H

#include <stdint.h>

#include "pyggml.h"

#define PYG_MAX_THREADS 256

typedef void (*pyg_task_fn)(void *ctx, int64_t task, int worker);

/* Threads worth using: max(1, min(physical cores in the affinity mask, floor(cgroup CPU quota))),
 * at most PYG_MAX_THREADS. Read once, at first use. */
int pyg_pool_default_threads(void);

/* Makes sure that jobs of n_threads (1..PYG_MAX_THREADS) can run; starts the missing workers.
 * PYG_STATUS_no_memory when the system refuses a thread. */
pyg_status pyg_pool_reserve(int n_threads);

/* Starts a job on n_threads workers. While another job runs it waits (the caller holds no Python
 * lock) and polls, see turns.h. Rebuilds the workers after a fork. */
pyg_status pyg_pool_begin(int n_threads, pyg_poll_fn poll, void *poll_ctx);

/* Runs tasks 0..n_tasks-1 of the job and returns when all are done. One task (or one worker) runs
 * inline, without waking anybody. */
void pyg_pool_run(pyg_task_fn fn, void *ctx, int64_t n_tasks);

/* Ends the job. */
void pyg_pool_end(void);

/* True while the calling process has worker threads (for tests). */
int pyg_pool_workers(void);

#endif
