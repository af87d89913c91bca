/* From the model's plan to launches: which ops become one, and what has to happen between them.
 *
 *      plan      norm        linear q, k, v      linear out, add      logits
 *      launches  norm  pack  linear x 3          pack  linear (+add)  norm (gathered)  pack  linear
 *
 * Rows are packed once for all linears of one input. join.c says which launches become one. Only
 * sizes are known here; memory.c finds a place for all. */
#include "backend/cuda/cuda.h"
#include "base/mem.h"
#include "model/uses.h"

#include <string.h>

struct compiler {
    struct cuda_backend *b;
    const struct model *m;
    uint32_t op;           /* index of the op being compiled */
    enum cuda_rows rows;   /* that it is over */
    bool last;             /* it is behind the last that stores */
    enum model_buf packed; /* whose rows the prepared activations hold, */
    uint32_t packed_k;     /* so many values of each, */
    unsigned packed_forms; /* in these forms; 0: nobody's */
    unsigned expert_forms; /* likewise of the activations for experts */
    uint32_t n_used;       /* experts of a row that were selected last */
    size_t n_vector_floats;
    struct err_info *e;
};

/* A small tensor as floats on the device; each once. */
static uint32_t add_vector(struct compiler *c, const struct gguf_tensor *t)
{
    struct cuda_backend *b = c->b;
    if (!t)
        return NO_VECTOR;
    for (uint32_t i = 0; i < b->n_vectors; i++) {
        if (b->vector_list[i].tensor == t)
            return i;
    }
    size_t n = 1;
    for (int i = 0; i < GGUF_MAX_DIMS; i++)
        n *= (size_t)t->ne[i];
    b->vector_list[b->n_vectors] = (struct cuda_vector){t, n, c->n_vector_floats};
    c->n_vector_floats += (n + 63) / 64 * 64;
    return b->n_vectors++;
}

static bool has_matrix(const struct op *op)
{
    return op->kind == OP_EMBED || op->kind == OP_LINEAR || op->kind == OP_HEAD_LINEAR ||
           op->kind == OP_EXPERTS || op->kind == OP_LOGITS;
}

/* A launch of the op's; NULL: of none. */
static struct launch *add_launch(struct compiler *c, enum launch_kind kind, const struct op *op)
{
    struct launch *l = &c->b->launches[c->b->n_launches++];
    *l = (struct launch){.kind = kind,
                         .op = op,
                         .rows = c->rows,
                         .last = c->last,
                         .n_used = c->n_used,
                         .w = NO_VECTOR,
                         .bias = NO_VECTOR,
                         .factors = NO_VECTOR};
    if (!op)
        return l;
    l->in = op->in;
    l->out = op->out;
    l->n = op->n_out;
    l->heads = 1;
    l->scale = op->scale;
    l->cap = op->cap;
    l->w = add_vector(c, has_matrix(op) ? NULL : op->w);
    l->bias = add_vector(c, op->bias);
    l->factors = add_vector(c, op->factor);
    if (c->packed == op->out)
        c->packed_forms = 0;
    return l;
}

static enum err add_plain(struct compiler *c, enum launch_kind kind, const struct op *op)
{
    add_launch(c, kind, op);
    return OK;
}

/* A tensor of n matrices, of each the n_out rows from first_row on; each once, so that tied
 * embeddings are the output's weights too. */
static enum err add_matrix(struct compiler *c,
                           const struct gguf_tensor *t,
                           uint64_t n_out,
                           uint32_t n,
                           uint32_t first_row,
                           uint32_t *index)
{
    struct cuda_backend *b = c->b;
    uint64_t file_rows = 1;
    for (int i = 1; i < GGUF_MAX_DIMS; i++)
        file_rows *= t->ne[i];
    if (!cuda_matrix_known((int)t->type))
        return err_set(c->e,
                       ERR_UNSUPPORTED,
                       "tensor %.*s has type %s, which the CUDA backend does not compute; the CPU "
                       "does (--device cpu)",
                       (int)(t->name.len < 64 ? t->name.len : 64),
                       t->name.data,
                       gguf_type_name(t->type));
    for (*index = 0; *index < b->n_matrices; ++*index) {
        const struct cuda_weights *w = &b->matrices[*index];
        if (w->tensor.data == t->data && w->m.n_out == n_out && w->n == n &&
            w->first_row == first_row)
            return OK;
    }
    struct cuda_weights *w = &b->matrices[b->n_matrices++];
    *w = (struct cuda_weights){
        .tensor = *t, .n = n, .first_row = first_row, .file_rows = (uint32_t)(file_rows / n)};
    w->m = (struct cuda_matrix){
        .type = (int)t->type, .n_in = (uint32_t)t->ne[0], .n_out = (uint32_t)n_out};
    w->matrix_bytes = cuda_matrix_bytes(w->m.type, w->m.n_in, w->m.n_out);
    return OK;
}

/* Make the prepared activations hold the rows of the input of op, for all linears of its group. */
static unsigned pack_for_group(struct compiler *c, const struct op *op)
{
    const struct op *end = c->m->ops + c->m->n_ops;
    unsigned forms = 0;
    for (const struct op *o = op; o == op || (o < end && plan_same_input(op, o)); o++)
        forms |= cuda_act_form((int)o->w->type);
    if (c->packed == op->in && c->packed_k == op->n_in && (c->packed_forms & forms) == forms)
        return c->packed_forms;
    struct launch *l = add_launch(c, LAUNCH_PACK, NULL);
    l->in = op->in;
    l->n = op->n_in;
    l->forms = forms;
    c->packed = op->in;
    c->packed_k = op->n_in;
    c->packed_forms = forms;
    return forms;
}

/* The same for matrices of each head's own, which read that head's values: for them alone. */
static unsigned pack_heads(struct compiler *c, const struct op *op)
{
    struct launch *l = add_launch(c, LAUNCH_PACK, NULL);
    l->in = op->in;
    l->n = op->n_in;
    l->forms = cuda_act_form((int)op->w->type);
    l->heads = op->n_head;
    l->in_step = op->in_step;
    c->packed_forms = 0;
    return l->forms;
}

static enum err add_product(struct compiler *c, const struct op *op, struct launch **out)
{
    const uint32_t heads = op->kind == OP_HEAD_LINEAR ? op->n_head : 1;
    uint32_t matrix = 0;
    enum err err = add_matrix(c, op->w, op->n_out, heads, 0, &matrix);
    if (err)
        return err;
    const unsigned forms = op->in_step ? pack_heads(c, op) : pack_for_group(c, op);
    struct launch *l = add_launch(c, LAUNCH_LINEAR, op);
    l->matrix = matrix;
    l->forms = forms;
    l->heads = heads;
    l->in_step = op->in_step;
    l->out_step = op->out_step;
    *out = l;
    return OK;
}

static enum err compile_linear(struct compiler *c, const struct op *op)
{
    struct launch *l;
    const struct op *add = plan_joined_add(c->m, c->op);
    enum err err = add_product(c, op, &l);
    if (err)
        return err;
    if (add) {
        l->out = add->out;
        l->add = true;
        if (c->packed == l->out)
            c->packed_forms = 0;
        c->op++;
    }
    return OK;
}

/* Logits are computed for some rows only: the norm before them gathers those. */
static enum err compile_logits(struct compiler *c, const struct op *op)
{
    struct launch *norm = c->b->n_launches ? &c->b->launches[c->b->n_launches - 1] : NULL, *l;
    if (!norm || (norm->kind != LAUNCH_NORM && norm->kind != LAUNCH_LAYER_NORM) ||
        norm->heads != 1 || norm->out != op->in || norm->in == norm->out)
        return err_set(c->e, ERR_UNSUPPORTED, "a plan whose logits do not follow a norm");
    c->rows = norm->rows = CUDA_ROWS_LOGITS;
    norm->gather = true;
    c->packed_forms = 0;
    enum err err = add_product(c, op, &l);
    if (!err && (op->scale != 1.0f || op->cap > 0.0f))
        add_launch(c, LAUNCH_CAP, op);
    c->packed_forms = 0;
    c->rows = CUDA_ROWS_ALL;
    return err;
}

/* A matrix for each expert; those that read the same rows share their preparation. */
static enum err compile_experts(struct compiler *c, const struct op *op)
{
    const struct op *end = c->m->ops + c->m->n_ops;
    const bool joins = c->op > 0 && op[-1].kind == OP_EXPERTS && op[-1].in == op->in;
    uint32_t matrix = 0;
    enum err err = add_matrix(c, op->w, op->n_out, c->m->hp.n_expert, op->first_row, &matrix);
    if (err)
        return err;
    if (!joins) {
        struct launch *l = add_launch(c, LAUNCH_EXPERT_PACK, NULL);
        l->in = op->in;
        l->n = op->n_in;
        for (const struct op *o = op; o < end && o->kind == OP_EXPERTS && o->in == op->in; o++)
            l->forms |= cuda_act_form((int)o->w->type);
        l->places = model_buf_of_experts(op->in);
        c->expert_forms = l->forms;
    }
    struct launch *l = add_launch(c, LAUNCH_EXPERT_LINEAR, op);
    l->matrix = matrix;
    l->forms = c->expert_forms;
    return OK;
}

static enum err compile_embed(struct compiler *c, const struct op *op)
{
    for (int t = 0; t < N_ROPE_TABLES && op->out == BUF_X; t++) { /* once a step */
        if (c->m->ropes[t].inv_freq)
            add_launch(c, LAUNCH_ANGLES, NULL)->rope = (enum rope_table)t;
    }
    struct launch *l = add_launch(c, LAUNCH_EMBED, op);
    return add_matrix(c, op->w, op->w->ne[1], 1, 0, &l->matrix);
}

/* In place, of each head by itself. */
static enum err compile_head_norm(struct compiler *c, enum launch_kind kind, const struct op *op)
{
    struct launch *l = add_launch(c, kind, op);
    l->in = op->out;
    l->heads = op->n_out / op->head_dim;
    l->n = op->head_dim;
    return OK;
}

/* From here on the plan is over the rows whose hidden states are wanted. */
static enum err compile_hidden(struct compiler *c, const struct op *op)
{
    c->rows = CUDA_ROWS_HIDDEN;
    c->packed_forms = 0;
    add_launch(c, LAUNCH_NORM, op)->gather = true;
    return OK;
}

static enum err compile_rope(struct compiler *c, enum launch_kind kind, const struct op *op)
{
    add_launch(c, kind, op);
    if (c->packed == BUF_K || c->packed == BUF_Q)
        c->packed_forms = 0;
    return OK;
}

/* Of rows, or of places, which have a rank each. */
static enum err compile_gate(struct compiler *c, enum launch_kind kind, const struct op *op)
{
    struct launch *l = add_launch(c, kind, op);
    l->places = op->out == BUF_EXPERT_GATE;
    if (l->places)
        l->n = op->n_out / op->n_head;
    return OK;
}

static enum err compile_cap(struct compiler *c, const struct op *op, float scale, float cap)
{
    struct launch *l = add_launch(c, LAUNCH_CAP, op);
    l->scale = scale;
    l->cap = cap;
    return OK;
}

static enum err compile_op(struct compiler *c, const struct op *op)
{
    struct launch *l;
    switch (op->kind) {
    case OP_EMBED:
        return compile_embed(c, op);
    case OP_ADD_POSITION:
        return add_plain(c, LAUNCH_ADD_POSITION, op);
    case OP_ADD_TYPE:
        return add_plain(c, LAUNCH_ADD_TYPE, op);
    case OP_NORM:
        return add_plain(c, LAUNCH_NORM, op);
    case OP_HEAD_NORM:
    case OP_HEAD_UNIT:
        return compile_head_norm(c, LAUNCH_NORM, op);
    case OP_LAYER_NORM:
        return add_plain(c, LAUNCH_LAYER_NORM, op);
    case OP_LINEAR:
        return compile_linear(c, op);
    case OP_ROPE:
        return compile_rope(c, LAUNCH_ROPE, op);
    case OP_ROPE_STORE:
        return compile_rope(c, LAUNCH_ROPE_STORE, op);
    case OP_HEAD_LAYER_NORM:
        return compile_head_norm(c, LAUNCH_HEAD_LAYER_NORM, op);
    case OP_HEAD_LINEAR:
        return add_product(c, op, &l);
    case OP_HEAD_SCALE:
        return add_plain(c, LAUNCH_HEAD_SCALE, op);
    case OP_HEAD_COPY:
        return add_plain(c, LAUNCH_HEAD_COPY, op);
    case OP_SCALE:
        return compile_cap(c, op, op->scale, 0.0f);
    case OP_TANH:
        return compile_cap(c, op, 1.0f, 1.0f);
    case OP_CLAMP:
        return add_plain(c, LAUNCH_CLAMP, op);
    case OP_MUL:
        return add_plain(c, LAUNCH_MUL, op);
    case OP_SPARSE:
        return add_plain(c, LAUNCH_SPARSE, op);
    case OP_MATCH:
    case OP_FOLD:
    case OP_PREDICT:
    case OP_CORRECT:
    case OP_SPREAD:
        return add_plain(c, LAUNCH_STREAMS, op);
    case OP_CONV:
        return add_plain(c, LAUNCH_CONV, op);
    case OP_RATES:
        return add_plain(c, LAUNCH_RATES, op);
    case OP_RECUR:
        return add_plain(c, LAUNCH_RECUR, op);
    case OP_ATTENTION:
        return add_plain(c, LAUNCH_ATTENTION, op);
    case OP_GATED:
        return compile_gate(c, LAUNCH_GATED, op);
    case OP_UNARY:
        return compile_gate(c, LAUNCH_UNARY, op);
    case OP_ADD:
        return add_plain(c, LAUNCH_ADD, op);
    case OP_ADD_GATED:
        return add_plain(c, LAUNCH_ADD_GATED, op);
    case OP_SELECT:
        c->n_used = op->n_head;
        return add_plain(c, LAUNCH_SELECT, op);
    case OP_EXPERTS:
        return compile_experts(c, op);
    case OP_MIX:
        return add_plain(c, LAUNCH_MIX, op);
    case OP_LOGITS:
        return compile_logits(c, op);
    case OP_HIDDEN:
        return compile_hidden(c, op);
    }
    return err_set(c->e, ERR_UNSUPPORTED, "the CUDA backend has no op of kind %d", (int)op->kind);
}

/* What a step borrows, and of which class: what is inside feed-forward layers, or as wide; what
 * attention reads and writes; all else, which is as wide as the residual stream, or small, is
 * GPU_HIDDEN (0). Logits have a place of their own. */
static void choose_buffers(struct cuda_backend *b)
{
    static const enum gpu_class classes[N_MODEL_BUFS] = {
        [BUF_Q] = GPU_ATTENTION,
        [BUF_K] = GPU_ATTENTION,
        [BUF_V] = GPU_ATTENTION,
        [BUF_ATT] = GPU_ATTENTION,
        [BUF_QUERY] = GPU_ATTENTION,
        [BUF_HEADS] = GPU_ATTENTION,
        [BUF_MIX] = GPU_INTERMEDIATE,
        [BUF_REC] = GPU_INTERMEDIATE,
        [BUF_REC_GATE] = GPU_INTERMEDIATE,
        [BUF_PER_LAYER] = GPU_INTERMEDIATE,
        [BUF_PROJECTED] = GPU_INTERMEDIATE,
        [BUF_STREAMS] = GPU_INTERMEDIATE,
        [BUF_UNFOLDED] = GPU_INTERMEDIATE,
        [BUF_GATE] = GPU_INTERMEDIATE,
        [BUF_UP] = GPU_INTERMEDIATE,
        [BUF_EXPERT_GATE] = GPU_INTERMEDIATE,
        [BUF_EXPERT_UP] = GPU_INTERMEDIATE,
        [BUF_EXPERT_OUT] = GPU_INTERMEDIATE,
    };
    memcpy(b->class_of, classes, sizeof classes);
    if (b->model->buf_width[BUF_RATE] > b->model->hp.n_embd) /* for each channel or key */
        b->class_of[BUF_RATE] = GPU_INTERMEDIATE;
    for (int i = 0; i < N_MODEL_BUFS; i++)
        b->lent[i] = i != BUF_LOGITS && b->model->buf_width[i] > 0;
}

/* Heads that attention has no kernel for. */
static enum err check_kernels(const struct model *m, struct err_info *e)
{
    const uint32_t latent = m->hp.latent;
    const uint32_t most = latent ? CUDA_ATTN_MOST_KEY : CUDA_ATTN_MOST_DIM;
    for (uint32_t i = 0; i < m->n_ops; i++) {
        const uint32_t dim = m->ops[i].head_dim;
        if (m->ops[i].kind == OP_ATTENTION &&
            (dim % 8 != 0 || dim > most || latent > CUDA_ATTN_MOST_DIM))
            return err_set(e,
                           ERR_UNSUPPORTED,
                           "heads of %u values; the CUDA backend wants a multiple of 8, at most %u",
                           dim,
                           most);
    }
    return OK;
}

enum err cuda_compile(struct cuda_backend *b, struct err_info *e)
{
    struct compiler c = {.b = b, .m = b->model, .e = e};
    const size_t n_ops = b->model->n_ops; /* an op makes at most three launches */
    const uint32_t last_storing = plan_last_storing(b->model);
    enum err err = check_kernels(b->model, e);
    b->launches = mem_zalloc(n_ops * 3 + N_ROPE_TABLES, sizeof *b->launches);
    b->matrices = mem_zalloc(n_ops + 1, sizeof *b->matrices);
    b->vector_list = mem_zalloc(n_ops * 3 + 1, sizeof *b->vector_list);
    for (c.op = 0; !err && c.op < n_ops; c.op++) {
        c.last = c.op > last_storing;
        err = compile_op(&c, &b->model->ops[c.op]);
    }
    cuda_join(b);
    b->n_vector_floats = c.n_vector_floats;
    choose_buffers(b);
    return err;
}
