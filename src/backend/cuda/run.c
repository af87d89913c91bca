/* A step: the buffers that it borrows, its launches as a graph or walked, and its results. */
#include "backend/cuda/cuda.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* --- what a step computes in --- */

enum err cuda_lease_take(struct cuda_backend *b, struct err_info *e)
{
    for (int i = 0; i < N_MODEL_BUFS; i++) {
        uint8_t *p;
        if (!b->lent[i])
            continue;
        enum err err = cuda_pool_borrow(&b->pool, b->class_of[i], &p, e);
        if (err) {
            b->n_lent = i;
            (void)!cuda_lease_return(b, NULL);
            return err;
        }
        b->bufs[i].p = (float *)(void *)p;
    }
    b->n_lent = N_MODEL_BUFS;
    return OK;
}

enum err cuda_lease_return(struct cuda_backend *b, struct err_info *e)
{
    enum err err = OK;
    for (int i = b->n_lent - 1; i >= 0; i--) {
        if (!b->lent[i])
            continue;
        const enum err one = cuda_pool_return(
            &b->pool, b->class_of[i], (uint8_t *)b->bufs[i].p, b->stream, err ? NULL : e);
        err = err ? err : one;
    }
    b->n_lent = 0;
    return err;
}

/* --- graphs --- */

/* A graph is of a row a sequence, and so are the kernels that it has: a chunk of a prompt, whose
 * rows read the same KV and whose steps are long, is walked. A few rows of one beside many that
 * decode change little. */
static bool covers(const struct cuda_bounds *have, const struct cuda_bounds *need)
{
    return need->rows <= 2 * need->seqs && cuda_bounds_within(need, have) &&
           (have->logit_rows == 0) == (need->logit_rows == 0) &&
           have->hidden_rows == need->hidden_rows;
}

int cuda_graph_for(const struct cuda_backend *b, const struct cuda_bounds *need)
{
    for (uint32_t i = 0; !b->no_graphs && i < b->n_graphs; i++) {
        if (covers(&b->graphs[i].bounds, need))
            return (int)i;
    }
    return -1;
}

/* Graphs take of what memory.c left to the driver, and of nobody else's. */
static bool is_within_reserve(const struct cuda_backend *b, size_t free_before)
{
    size_t left = 0, total = 0;
    return cudaMemGetInfo(&left, &total) == cudaSuccess &&
           (left >= free_before || free_before - left <= b->budget.reserve);
}

/* A captured graph to one that can be launched. */
static enum err make_graph(struct cuda_backend *b,
                           cudaGraph_t graph,
                           size_t free_before,
                           cudaGraphExec_t *out,
                           struct err_info *e)
{
    cudaError_t rc = cudaGraphInstantiate(out, graph, 0);
    if (rc == cudaSuccess)
        rc = cudaGraphUpload(*out, b->stream); /* no step waits for it */
    if (rc != cudaSuccess)
        return cuda_failed(rc, "making a graph", e) == ERR_NOMEM ? ERR_NOMEM : ERR_UNSUPPORTED;
    if (!is_within_reserve(b, free_before))
        return err_set(e, ERR_NOMEM, "more than the %zu bytes left for them", b->budget.reserve);
    return OK;
}

/* A launch that is refused here would be refused in a step, too; any other failure is of graphs
 * alone. Errors: ERR_INTERNAL, ERR_UNSUPPORTED, ERR_NOMEM. */
static enum err capture_failed(cudaError_t rc, const char *what, struct err_info *e)
{
    const bool of_capture = rc >= cudaErrorStreamCaptureUnsupported && rc <= cudaErrorCapturedEvent;
    const enum err err = cuda_failed(rc, what, e);
    return err == ERR_INTERNAL && of_capture ? ERR_UNSUPPORTED : err;
}

/* The launches as a graph; the stream captures no more, whatever comes of it. */
static enum err capture_launches(struct cuda_backend *b,
                                 const struct cuda_bounds *bounds,
                                 cudaGraph_t *graph,
                                 struct err_info *e)
{
    const char *what = "a launch";
    *graph = NULL;
    cudaError_t rc = cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal);
    if (rc != cudaSuccess) {
        (void)cuda_failed(rc, "capturing a graph", e);
        return ERR_UNSUPPORTED;
    }
    rc = cuda_walk(b, bounds);
    if (rc == cudaSuccess) {
        what = "capturing the choice of tokens";
        rc = cuda_jobs_choose(b, bounds);
    }
    const cudaError_t end = cudaStreamEndCapture(b->stream, graph);
    if (rc != cudaSuccess)
        return capture_failed(rc, what, e);
    return end == cudaSuccess ? OK : capture_failed(end, "capturing a graph", e);
}

/* The next graph; where it fails, no call that follows is blamed, and the table is as it was.
 * Thread-local: what other threads of the process do on other devices is no business of it. Errors:
 * ERR_NOMEM, ERR_UNSUPPORTED: steps can be walked all the same; ERR_INTERNAL: they cannot. */
static enum err capture(struct cuda_backend *b,
                        const struct cuda_bounds *bounds,
                        size_t free_before,
                        struct err_info *e)
{
    struct cuda_graph g = {.bounds = *bounds};
    cudaGraph_t graph;
    if (!cuda_bounds_within(bounds, &b->most))
        return err_set(e, ERR_INTERNAL, "a graph of larger steps than memory was taken for");
    enum err err = capture_launches(b, bounds, &graph, e);
    if (!err)
        err = make_graph(b, graph, free_before, &g.exec, e);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (!err)
        b->graphs[b->n_graphs++] = g;
    else if (g.exec)
        (void)cudaGraphExecDestroy(g.exec);
    if (err)
        (void)cudaGetLastError();
    return err;
}

/* One for each number of sequences, up to a power of two, whose contexts have at most so many
 * ranges. */
static enum err capture_rows(struct cuda_backend *b,
                             uint32_t ranges,
                             size_t free_before,
                             struct err_info *e)
{
    const uint32_t most_rows =
        b->cfg.max_seqs < b->cfg.max_rows ? b->cfg.max_seqs : b->cfg.max_rows;
    enum err err = OK;
    for (uint32_t rows = 1; !err && b->n_graphs < CUDA_MAX_GRAPHS; rows *= 2) {
        rows = rows < most_rows ? rows : most_rows;
        const uint32_t logits = rows < b->cfg.max_logit_rows ? rows : b->cfg.max_logit_rows;
        const struct cuda_bounds m = {.rows = rows,
                                      .seqs = rows,
                                      .logit_rows = logits,
                                      .tiles = rows < b->most.tiles ? rows : b->most.tiles,
                                      .jobs = logits,
                                      .ranges = ranges};
        err = capture(b, &m, free_before, e);
        if (rows == most_rows)
            break;
    }
    return err;
}

static int by_ranges_and_rows(const void *x, const void *y)
{
    const struct cuda_bounds *a = &((const struct cuda_graph *)x)->bounds;
    const struct cuda_bounds *b = &((const struct cuda_graph *)y)->bounds;
    if (a->ranges != b->ranges)
        return a->ranges < b->ranges ? -1 : 1;
    return a->rows < b->rows ? -1 : a->rows > b->rows;
}

static bool has_graphs_of(const struct cuda_backend *b, uint32_t ranges)
{
    for (uint32_t i = 0; i < b->n_graphs; i++) {
        if (b->graphs[i].bounds.ranges == ranges)
            return true;
    }
    return false;
}

/* The longest contexts first, whose graphs serve shorter ones too, should there be no room for
 * more; then a quarter as long, and so on down to one range, which takes no merge; then what lies
 * halfway between. */
static enum err capture_all(struct cuda_backend *b, size_t free_before, struct err_info *e)
{
    enum err err = OK;
    for (int halfway = 0; halfway < 2; halfway++) {
        uint32_t ranges = b->most.ranges >> halfway;
        for (; !err && ranges > 0; ranges = ranges > 4 ? ranges / 4 : ranges > 1) {
            if (!has_graphs_of(b, ranges))
                err = capture_rows(b, ranges, free_before, e);
        }
    }
    qsort(b->graphs, b->n_graphs, sizeof *b->graphs, by_ranges_and_rows);
    return err;
}

/* A graph for each number of sequences that decode together, with the choice of their tokens, and
 * each of some lengths of the longest context; in the order in which the first that covers a step
 * is the best. Where they would be too many, the device has no memory for more, or cannot make
 * them, a step has the graph of longer contexts, or is walked. */
enum err cuda_graphs_capture(struct cuda_backend *b, struct err_info *e)
{
    size_t free_before = 0, total = 0;
    struct err_info why = {0};
    if (!b->model->generates)
        return OK;
    const cudaError_t rc = cudaMemGetInfo(&free_before, &total);
    if (rc != cudaSuccess)
        return cuda_failed(rc, "its memory", e);
    enum err err = cuda_lease_take(b, e);
    if (err)
        return err;
    err = capture_all(b, free_before, &why);
    if (err == ERR_NOMEM || err == ERR_UNSUPPORTED) {
        log_warn("cuda:%u: no more than %u graphs of steps (%s); other steps have those of longer "
                 "contexts, or are walked",
                 b->cfg.device.index,
                 b->n_graphs,
                 why.text);
        err = OK;
    }
    if (err)
        (void)err_set(e, err, "%s", why.text);
    memcpy(b->graph_bufs, b->bufs, sizeof b->graph_bufs);
    const enum err back = cuda_lease_return(b, err ? NULL : e);
    return err ? err : back;
}

/* --- a step --- */

cudaError_t cuda_copy_rows(
    const struct cuda_backend *b, float *to, enum model_buf buf, uint32_t first, uint32_t n)
{
    const size_t width = b->model->buf_width[buf], stride = b->bufs[buf].stride;
    return cudaMemcpy2DAsync(to,
                             width * sizeof(float),
                             b->bufs[buf].p + first * stride,
                             stride * sizeof(float),
                             width * sizeof(float),
                             n,
                             cudaMemcpyDeviceToHost,
                             b->stream);
}

static cudaError_t copy_back(struct cuda_backend *b, const struct cuda_slot *s)
{
    const uint32_t n_logits = s->counts.n_logit_rows, n_hidden = s->counts.n_hidden_rows;
    cudaError_t rc = cudaSuccess;
    if (s->beside)
        rc = cuda_jobs_finish(b, s);
    else if (n_logits)
        rc = cuda_copy_rows(b, s->logits, BUF_LOGITS, 0, n_logits);
    if (rc == cudaSuccess && n_hidden)
        rc = cuda_copy_rows(b, s->hidden, BUF_HIDDEN, 0, n_hidden);
    if (rc == cudaSuccess && n_hidden && b->model->buf_width[BUF_SCORES])
        rc = cuda_copy_rows(b, s->scores, BUF_SCORES, 0, n_hidden);
    return rc;
}

/* Its launches alone: the graph, or a walk. */
static enum err launch_slot(struct cuda_backend *b, struct cuda_slot *s, struct err_info *e)
{
    const bool replay = s->graph >= 0 && memcmp(b->graph_bufs, b->bufs, sizeof b->graph_bufs) == 0;
    cudaError_t rc;
    pthread_mutex_lock(&b->lock);
    b->replays += replay;
    b->walks += !replay;
    pthread_mutex_unlock(&b->lock);
    if (!replay) {
        rc = cuda_walk(b, &s->bounds);
        return rc == cudaSuccess ? OK : cuda_failed(rc, "a launch", e);
    }
    s->sampled = s->jobs.n_host_rows == 0;
    rc = cudaGraphLaunch(b->graphs[s->graph].exec, b->stream);
    return rc == cudaSuccess ? OK : cuda_failed(rc, "a graph", e);
}

enum err cuda_slot_submit(struct cuda_backend *b, struct cuda_slot *s, struct err_info *e)
{
    enum err err = cuda_lease_take(b, e);
    if (err)
        return err;
    cudaError_t rc = cuda_moves_join(b, &s->moved);
    if (rc == cudaSuccess && !s->beside)
        rc = cudaEventRecord(b->run_begin, b->stream);
    if (rc == cudaSuccess)
        rc = cudaMemcpyAsync(b->step_in, s->pinned, s->in_bytes, cudaMemcpyHostToDevice, b->stream);
    if (rc == cudaSuccess && s->beside)
        rc = cuda_jobs_begin(b, s);
    if (rc != cudaSuccess)
        err = cuda_failed(rc, "a step's copy", e);
    if (!err)
        err = launch_slot(b, s, e);
    if (!err && ((rc = copy_back(b, s)) != cudaSuccess ||
                 (!s->beside && (rc = cudaEventRecord(b->run_end, b->stream)) != cudaSuccess)))
        err = cuda_failed(rc, "a step's results", e);
    const enum err back = cuda_lease_return(b, err ? NULL : e);
    return err ? err : back;
}

static enum err wait_for_run(struct cuda_backend *b, struct err_info *e)
{
    float ms = 0;
    cudaError_t rc = cudaEventSynchronize(b->run_end);
    if (rc == cudaSuccess)
        rc = cudaEventElapsedTime(&ms, b->run_begin, b->run_end);
    if (rc != cudaSuccess)
        return cuda_failed(rc, "a step", e);
    pthread_mutex_lock(&b->lock);
    b->busy_us += (double)ms * 1e3;
    pthread_mutex_unlock(&b->lock);
    return OK;
}

enum err cuda_run(struct backend *base,
                  const struct batch *batch,
                  float **logits,
                  struct err_info *e)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    struct cuda_slot *s = &b->slots[0];
    const uint64_t begin_ns = clock_ns();
    *logits = NULL;
    if (batch->n_rows == 0)
        return OK;
    cuda_device_enter(b);
    cuda_slot_release(b, s);
    enum err err = cuda_blocks_whole(b, e);
    if (!err)
        err = cuda_slot_prepare(b, s, batch, 0, e);
    if (err)
        return err;
    err = cuda_slot_submit(b, s, e);
    if (!err)
        err = wait_for_run(b, e);
    else
        (void)cudaStreamSynchronize(b->stream); /* whatever it began reads the slot no more */
    *logits = s->logits;
    b->last = s;
    pthread_mutex_lock(&b->lock);
    b->run_us += (double)(clock_ns() - begin_ns) * 1e-3;
    pthread_mutex_unlock(&b->lock);
    return err;
}

const float *cuda_hidden(const struct backend *base, enum model_buf buf, uint32_t i)
{
    const struct cuda_backend *b = (const struct cuda_backend *)base;
    const float *rows = buf == BUF_SCORES ? b->last->scores : b->last->hidden;
    return rows + (size_t)i * b->model->buf_width[buf];
}
