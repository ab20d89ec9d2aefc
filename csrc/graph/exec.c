/* Runs a program: inputs in, steps in order, outputs out. */
#define _POSIX_C_SOURCE 200809L

#include <string.h>
#include <time.h>

#include "core/tensor.h"
#include "graph/program.h"
#include "thread/pool.h"

typedef struct run_state {
    const pyg_program *prog;
    const pyg_step *step;
    int phase;
    pyg_fault fault;
} run_state;

/* NULL stays NULL: a program without constants, an empty arena. */
static char *at(char *base, size_t off) { return base == NULL ? NULL : base + off; }

static void run_task(void *ctx, int64_t index, int worker) {
    run_state *run = ctx;
    const pyg_program *p = run->prog;
    const pyg_step *step = run->step;
    const pyg_task task = {
        .io = step->io,
        .constants = at(p->constants, step->const_off),
        .scratch = at(p->bound, p->scratch_off + (size_t)worker * p->scratch_stride),
        .shared = at(p->bound, p->shared_off),
        .fault = &run->fault,
        .index = index,
        .n_tasks = step->plan.n_tasks[run->phase],
        .phase = run->phase,
    };
    step->op->run(&task);
}

int64_t pyg_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The ops that meet indices take these last. */
static pyg_status fault_status(const run_state *run) {
    const pyg_step *step = run->step;
    const int at = step->op->flags & PYG_OP_TABLE_1 ? 1 : 0;
    char table[160];
    pyg_tensor_describe(step->io.src[at], table, sizeof table);
    return pyg_fail(PYG_STATUS_index, "%s: ids[%lld] = %lld is outside the rows of %s %s",
                    step->op->name, (long long)atomic_load(&run->fault.position),
                    (long long)atomic_load(&run->fault.value), step->op->src_name[at], table);
}

static pyg_status run_phases(run_state *run) {
    for (int phase = 0; phase < run->step->plan.n_phases; phase++) {
        run->phase = phase;
        pyg_pool_run(run_task, run, run->step->plan.n_tasks[phase]);
        if (atomic_load_explicit(&run->fault.position, memory_order_relaxed) >= 0)
            return fault_status(run);
    }
    return PYG_OK;
}

static pyg_status run_timed(run_state *run, int32_t i) {
    const int64_t start = pyg_now_ns();
    PYG_TRY(run_phases(run));
    run->prog->step_ns[i] += pyg_now_ns() - start;
    return PYG_OK;
}

static pyg_status run_step(run_state *run, int32_t i) {
    const pyg_program *p = run->prog;
    if (p->guarded) pyg_guard_before(p, run->step);
    PYG_TRY(p->profiling ? run_timed(run, i) : run_phases(run));
    return p->guarded ? pyg_guard_after(p, run->step) : PYG_OK;
}

/* Between two steps: others have their turn, and poll may run a program of its own. */
static pyg_status pause_run(const pyg_program *p, pyg_poll_fn poll, void *poll_ctx) {
    pyg_pool_end();
    if (poll(poll_ctx)) return pyg_fail(PYG_STATUS_cancelled, "the run was stopped");
    return pyg_pool_begin(p->n_threads, poll, poll_ctx);
}

static pyg_status run_steps(const pyg_program *p, pyg_poll_fn poll, void *poll_ctx) {
    run_state run = {.prog = p};
    atomic_init(&run.fault.position, -1);
    PYG_TRY(pyg_pool_begin(p->n_threads, poll, poll_ctx));
    pyg_status status = PYG_OK;
    int64_t polled = pyg_now_ns();
    for (int32_t i = 0; i < p->n_steps; i++) {
        run.step = &p->steps[i];
        status = run_step(&run, i);
        if (status != PYG_OK) break;
        if (poll == NULL || pyg_now_ns() - polled < PYG_POLL_NS) continue;
        PYG_TRY(pause_run(p, poll, poll_ctx));
        polled = pyg_now_ns();
    }
    pyg_pool_end();
    return status;
}

static pyg_status run_bound(pyg_program *p, const void *const *inputs, void *const *outputs,
                            pyg_poll_fn poll, void *poll_ctx) {
    pyg_program_bind(p);
    if (p->guarded) pyg_guard_start(p);
    for (int i = 0; i < p->n_inputs; i++) {
        const pyg_tensor *t = &p->slots[p->input_slots[i]].t;
        const size_t bytes = pyg_extent_bytes(t);
        if (bytes > 0) memcpy(t->data, inputs[i], bytes);
    }
    PYG_TRY(run_steps(p, poll, poll_ctx));
    for (int i = 0; i < p->n_outputs; i++)
        pyg_pack_bytes(&p->slots[p->output_slots[i]].t, outputs[i]);
    if (p->profiling) p->runs_timed++;
    return PYG_OK;
}

pyg_status pyg_program_run(pyg_program *p, const void *const *inputs, void *const *outputs,
                           pyg_poll_fn poll, void *poll_ctx) {
    if (atomic_exchange(&p->running, 1))
        return pyg_fail(PYG_STATUS_graph, "the program is running already");
    pyg_status status;
    if (atomic_exchange(&p->arena->busy, 1)) {
        status = pyg_fail(PYG_STATUS_graph, "another program is running in the same arena");
    } else {
        status = run_bound(p, inputs, outputs, poll, poll_ctx);
        atomic_store(&p->arena->busy, 0);
    }
    atomic_store(&p->running, 0);
    return status;
}
