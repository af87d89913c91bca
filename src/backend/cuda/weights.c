/* Weights to the device: packed on the host by all workers into one of two pinned buffers, while
 * the other is on its way.
 *
 *      workers   pack A | pack B        | pack A       | ...
 *      copies           | A to device   | B to device  | ...
 */
#include "backend/cuda/cuda.h"

#include "gguf/gguf.h"

#include <string.h>

#define STAGING_BYTES ((size_t)16 << 20)

/* Parts first .. first + n - 1 of one matrix of an entry, into a pinned buffer. */
struct packing {
    const struct cuda_backend *b;
    const struct cuda_weights *w;
    uint32_t matrix, first;
    size_t part_bytes, row_bytes; /* packed; of the file */
    uint8_t *to;
};

struct loader {
    struct cuda_backend *b;
    uint8_t *pinned[2];
    cudaEvent_t sent[2];
    bool used[2];
    unsigned next;
    size_t bytes, done, all; /* of a buffer; of the weights */
};

/* A part's first row in the file. */
static const uint8_t *rows_of(const struct packing *p, uint32_t part)
{
    const size_t row = (size_t)part * CUDA_PART_ROWS + p->w->first_row;
    return p->w->tensor.data + ((size_t)p->matrix * p->w->file_rows + row) * p->row_bytes;
}

static void pack_part(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    const struct packing *p = ctx;
    const struct cuda_matrix *m = &p->w->m;
    const uint32_t left = m->n_out - (p->first + item) * CUDA_PART_ROWS;
    (void)phase;
    (void)worker;
    cuda_part_pack(m->type,
                   m->n_in,
                   left < CUDA_PART_ROWS ? left : CUDA_PART_ROWS,
                   rows_of(p, p->first + item),
                   p->to + (size_t)item * p->part_bytes);
}

/* Wait until the next buffer is free. */
static enum err next_buffer(struct loader *l, uint8_t **out, struct err_info *e)
{
    const unsigned i = l->next;
    *out = l->pinned[i];
    if (!l->used[i])
        return OK;
    const cudaError_t rc = cudaEventSynchronize(l->sent[i]);
    return rc == cudaSuccess ? OK : cuda_failed(rc, "loading weights", e);
}

/* Send the buffer that was filled. */
static enum err send(struct loader *l, void *to, size_t n, struct err_info *e)
{
    const unsigned i = l->next;
    cudaError_t rc =
        cudaMemcpyAsync(to, l->pinned[i], n, cudaMemcpyHostToDevice, l->b->ways[CUDA_IN].stream);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(l->sent[i], l->b->ways[CUDA_IN].stream);
    l->used[i] = true;
    l->next = 1 - i;
    return rc == cudaSuccess ? OK : cuda_failed(rc, "loading weights", e);
}

static void drop_pages(const struct packing *p, uint32_t n_parts)
{
    const struct gguf_tensor *t = &p->w->tensor;
    const size_t from = (size_t)(rows_of(p, p->first) - t->data);
    const size_t n = (size_t)n_parts * CUDA_PART_ROWS * p->row_bytes;
    gguf_drop_pages(p->b->model->gguf, t, from, n < t->n_bytes - from ? n : t->n_bytes - from);
}

static enum err load_matrix(struct loader *l,
                            const struct cuda_weights *w,
                            uint32_t matrix,
                            struct err_info *e)
{
    const struct backend_config *cfg = &l->b->cfg;
    struct packing p = {.b = l->b,
                        .w = w,
                        .matrix = matrix,
                        .part_bytes = cuda_part_bytes(w->m.type, w->m.n_in),
                        .row_bytes = w->tensor.n_bytes / ((size_t)w->file_rows * w->n)};
    const uint32_t n_parts = (w->m.n_out + CUDA_PART_ROWS - 1) / CUDA_PART_ROWS;
    const uint32_t most = (uint32_t)(l->bytes / p.part_bytes);
    uint8_t *to = l->b->weights + w->offset + matrix * w->matrix_bytes;
    enum err err = OK;
    for (; !err && p.first < n_parts; p.first += most) {
        const uint32_t n = n_parts - p.first < most ? n_parts - p.first : most;
        err = next_buffer(l, &p.to, e);
        if (err)
            break;
        pool_walk(l->b->threads, &n, 1, pack_part, &p);
        drop_pages(&p, n);
        err = send(l, to + p.first * p.part_bytes, n * p.part_bytes, e);
        l->done += n * p.part_bytes;
        if (cfg->progress && l->done < l->all)
            cfg->progress(cfg->progress_ctx, (double)l->done / (double)l->all);
    }
    return err;
}

/* A row of a small tensor at a time, as floats. */
static enum err load_vector(struct loader *l, const struct cuda_vector *v, struct err_info *e)
{
    const struct gguf_tensor *t = v->tensor;
    const size_t width = (size_t)t->ne[0], n_rows = v->n / width;
    const size_t most = l->bytes / (width * sizeof(float)), row_bytes = t->n_bytes / n_rows;
    for (size_t row = 0; row < n_rows; row += most) {
        const size_t n = n_rows - row < most ? n_rows - row : most;
        uint8_t *to;
        enum err err = next_buffer(l, &to, e);
        if (err)
            return err;
        for (size_t i = 0; i < n; i++)
            gguf_dequantize(
                t->type, t->data + (row + i) * row_bytes, (float *)(void *)to + i * width, width);
        err = send(l, l->b->vectors + v->offset + row * width, n * width * sizeof(float), e);
        if (err)
            return err;
    }
    return OK;
}

/* Behind the weights: a copy without a stream may return before the bytes are there, and our
 * streams do not wait for it. */
static enum err load_angles(struct cuda_backend *b, struct err_info *e)
{
    for (int t = 0; t < N_ROPE_TABLES; t++) {
        const struct model_rope *rope = &b->model->ropes[t];
        if (!rope->inv_freq)
            continue;
        const cudaError_t rc = cudaMemcpyAsync(b->inv_freq[t],
                                               rope->inv_freq,
                                               rope->n_dims / 2 * sizeof(double),
                                               cudaMemcpyHostToDevice,
                                               b->ways[CUDA_IN].stream);
        if (rc != cudaSuccess)
            return cuda_failed(rc, "loading the angles", e);
    }
    return OK;
}

static enum err open_loader(struct loader *l, struct err_info *e)
{
    l->bytes = STAGING_BYTES;
    for (uint32_t i = 0; i < l->b->n_matrices; i++) {
        const struct cuda_weights *w = &l->b->matrices[i];
        const size_t part = cuda_part_bytes(w->m.type, w->m.n_in);
        l->bytes = part > l->bytes ? part : l->bytes;
        l->all += w->matrix_bytes * w->n;
    }
    for (uint32_t i = 0; i < l->b->n_vectors; i++) {
        const size_t row = (size_t)l->b->vector_list[i].tensor->ne[0] * sizeof(float);
        l->bytes = row > l->bytes ? row : l->bytes;
    }
    for (int i = 0; i < 2; i++) {
        void *p = NULL;
        cudaError_t rc = cudaMallocHost(&p, l->bytes);
        l->pinned[i] = p;
        if (rc == cudaSuccess)
            rc = cudaEventCreateWithFlags(&l->sent[i], cudaEventDisableTiming);
        if (rc != cudaSuccess)
            return cuda_failed(rc, "buffers for loading", e);
    }
    return OK;
}

static void close_loader(struct loader *l)
{
    (void)cudaStreamSynchronize(l->b->ways[CUDA_IN].stream);
    for (int i = 0; i < 2; i++) {
        cuda_event_drop(l->sent[i]);
        (void)cudaFreeHost(l->pinned[i]);
    }
}

enum err cuda_weights_load(struct cuda_backend *b, struct err_info *e)
{
    struct loader l = {.b = b};
    enum err err = open_loader(&l, e);
    for (uint32_t i = 0; !err && i < b->n_matrices; i++) {
        for (uint32_t k = 0; !err && k < b->matrices[i].n; k++)
            err = load_matrix(&l, &b->matrices[i], k, e);
    }
    for (uint32_t i = 0; !err && i < b->n_vectors; i++)
        err = load_vector(&l, &b->vector_list[i], e);
    if (!err)
        err = load_angles(b, e);
    if (!err) {
        const cudaError_t rc = cudaStreamSynchronize(b->ways[CUDA_IN].stream);
        err = rc == cudaSuccess ? OK : cuda_failed(rc, "loading weights", e);
    }
    close_loader(&l);
    for (uint32_t i = 0; !err && i < b->n_matrices; i++) { /* the pages that two parts shared */
        const struct gguf_tensor *t = &b->matrices[i].tensor;
        gguf_drop_pages(b->model->gguf, t, 0, t->n_bytes);
    }
    if (!err && b->cfg.progress)
        b->cfg.progress(b->cfg.progress_ctx, 1.0);
    return err;
}
