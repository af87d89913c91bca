/* From the model's plan to phases: which ops can share a phase, and which disappear into another.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/panel.h"
#include "backend/cpu/vectors.h"
#include "base/mem.h"
#include "model/uses.h"

#include <math.h>

struct compiler {
    struct cpu_backend *b;
    const struct model *m;
    uint32_t op;             /* index of the op being compiled */
    enum phase_rows rows;    /* that it is over */
    enum model_buf packed;   /* whose rows the packed activations hold, */
    uint64_t packed_formats; /* for matrices of which formats; 0: nobody's */
    struct vectors v;        /* what b->vectors holds so far */
    uint64_t n_panels;       /* of all matrices so far */
    struct err_info *e;
};

static struct phase *last_phase(struct compiler *c)
{
    return c->b->n_phases ? &c->b->phases[c->b->n_phases - 1] : NULL;
}

static struct phase *add_phase(struct compiler *c, enum phase_kind kind)
{
    struct cpu_backend *b = c->b;
    struct phase *p = &b->phases[b->n_phases++];
    /* NOLINTNEXTLINE(clang-analyzer-core.*): ops make room for their phases */
    *p = (struct phase){.kind = kind, .rows = c->rows};
    p->first = kind == PHASE_ROWS ? b->n_steps : b->n_matrices;
    return p;
}

/* `written` changes: packed rows of it are what it held before. */
static void forget_packed(struct compiler *c, enum model_buf written)
{
    if (c->packed == written)
        c->packed_formats = 0;
}

/* Another step for every row, in the phase at hand if that goes by rows too. */
static struct step *add_step_over(struct compiler *c,
                                  enum step_kind kind,
                                  const struct op *op,
                                  bool places)
{
    struct phase *p = last_phase(c);
    if (!p || p->kind != PHASE_ROWS || p->places != places || p->rows != c->rows)
        p = add_phase(c, PHASE_ROWS);
    p->places = places;
    p->n++;
    struct step *s = &c->b->steps[c->b->n_steps++];
    *s = (struct step){.kind = kind};
    if (op) {
        s->in = op->in;
        s->in2 = op->in2;
        s->out = op->out;
        s->layer = op->layer;
        s->n_head = op->n_head;
        s->n_head_kv = op->n_head_kv;
        s->head_dim = op->head_dim;
        s->in2_first = op->in2_first;
        s->in_step = op->in_step;
        s->out_step = op->out_step;
        s->n = op->n_out;
        s->scale = op->scale;
        s->cap = op->cap;
        s->rope = op->rope;
        s->temper = op->temper;
        s->gate = op->gate;
        s->unary = op->unary;
        s->front = op->front;
        s->zero = op->zero;
        s->eps = op->eps > 0.0f ? op->eps : c->m->hp.norm_eps;
        s->recur = op->recur;
        forget_packed(c, op->out);
    }
    return s;
}

static struct step *add_step(struct compiler *c, enum step_kind kind, const struct op *op)
{
    return add_step_over(c, kind, op, false);
}

/* Add the format of op's matrices to those that read packed activations. */
static enum err add_format(struct compiler *c, const struct op *op, uint64_t *formats)
{
    enum panel_format format;
    if (!panel_format_of(op->w->type, &format))
        return err_set(c->e,
                       ERR_UNSUPPORTED,
                       "no CPU kernel for matrices of type %s",
                       gguf_type_name(op->w->type));
    *formats |= UINT64_C(1) << format;
    return OK;
}

/* Make the packed activations hold the rows of the input of op, for all linears of its group. */
static enum err pack_for_group(struct compiler *c, const struct op *op)
{
    uint64_t formats = 0;
    const struct op *end = c->m->ops + c->m->n_ops;
    for (const struct op *o = op; o == op || (o < end && plan_same_input(op, o)); o++) {
        enum err err = add_format(c, o, &formats);
        if (err)
            return err;
    }
    if (c->packed == op->in && (c->packed_formats & formats) == formats)
        return OK;
    struct step *s = add_step(c, STEP_PACK, NULL);
    s->in = op->in;
    s->n = op->n_in;
    s->formats = formats;
    c->packed = op->in;
    c->packed_formats = formats;
    return OK;
}

static struct matrix *add_matrix(struct compiler *c,
                                 struct phase *p,
                                 const struct op *op,
                                 const float *bias)
{
    struct matrix *x = &c->b->matrices[c->b->n_matrices++];
    *x = (struct matrix){.tensor = *op->w, .out = op->out};
    panel_format_of(op->w->type, &x->format);
    x->n_in = op->n_in;
    x->n_out = op->n_out;
    x->panel_bytes = panel_bytes(x->format, op->n_in);
    x->n_panels = (op->n_out + PANEL_COLS - 1) / PANEL_COLS;
    x->first_panel = c->n_panels;
    c->n_panels += x->n_panels;
    x->bias = bias;
    p->n++;
    p->n_panels += x->n_panels;
    p->panel_bytes = x->panel_bytes > p->panel_bytes ? x->panel_bytes : p->panel_bytes;
    forget_packed(c, op->out);
    return x;
}

/* A linear joins the phase before it if both read the same rows; one that does not may do the add
 * that follows it. */
static enum err compile_linear(struct compiler *c, const struct op *op)
{
    const struct phase *last = last_phase(c);
    struct phase *p;
    bool joins = last && last->kind == PHASE_LINEAR && last->rows == c->rows &&
                 !c->b->matrices[last->first].add && c->op > 0 && plan_same_input(op - 1, op) &&
                 c->packed_formats;
    if (joins) {
        p = &c->b->phases[c->b->n_phases - 1];
    } else {
        enum err err = pack_for_group(c, op);
        if (err)
            return err;
        p = add_phase(c, PHASE_LINEAR);
    }
    struct matrix *x = add_matrix(c, p, op, vectors_copy(&c->v, op->bias));
    x->scale = vectors_copy(&c->v, op->factor);
    const struct op *add = joins ? NULL : plan_joined_add(c->m, c->op);
    if (add) {
        x->out = add->out;
        x->add = true;
        forget_packed(c, x->out);
        c->op++;
    }
    return OK;
}

/* A matrix for each head, of its own columns to its own. */
static enum err compile_head_linear(struct compiler *c, const struct op *op)
{
    uint64_t formats = 0;
    enum err err = add_format(c, op, &formats);
    if (err)
        return err;
    struct step *s = add_step(c, STEP_PACK_HEADS, op);
    s->n = op->n_in;
    s->formats = formats;
    c->packed_formats = 0;
    struct phase *p = add_phase(c, PHASE_LINEAR);
    for (uint32_t i = 0; i < op->n_head; i++) {
        struct matrix *x = add_matrix(c, p, op, NULL);
        x->head = i;
        x->out_first = i * op->out_step;
        x->tensor.n_bytes /= op->n_head;
        x->tensor.data += i * x->tensor.n_bytes;
        x->tensor.ne[2] = 1;
    }
    return OK;
}

/* Logits are computed for some rows only: the norm before them gathers those. */
static enum err compile_logits(struct compiler *c, const struct op *op)
{
    struct cpu_backend *b = c->b;
    const enum phase_rows rows = c->rows;
    struct phase *p = last_phase(c);
    struct step *norm = b->n_steps ? &b->steps[b->n_steps - 1] : NULL;
    if (!p || !norm || p->kind != PHASE_ROWS ||
        (norm->kind != STEP_NORM && norm->kind != STEP_LAYER_NORM) || norm->out != op->in ||
        norm->in == norm->out)
        return err_set(c->e, ERR_UNSUPPORTED, "a plan whose logits do not follow a norm");
    if (p->n > 1) { /* the steps before it stay for all rows there are */
        p->n--;
        p = add_phase(c, PHASE_ROWS);
        p->first--;
        p->n = 1;
    }
    c->rows = p->rows = ROWS_LOGITS;
    p->gather = true;
    c->packed_formats = 0;
    enum err err = pack_for_group(c, op);
    if (err)
        return err;
    add_matrix(c, add_phase(c, PHASE_LINEAR), op, vectors_copy(&c->v, op->bias))->scale =
        vectors_copy(&c->v, op->factor);
    c->packed_formats = 0;
    if (op->scale != 1.0f || op->cap > 0.0f)
        add_step(c, STEP_CAP, op);
    c->rows = rows;
    return OK;
}

/* From here on the plan is over the rows whose hidden states are wanted. */
static void compile_hidden(struct compiler *c, const struct op *op)
{
    c->rows = ROWS_HIDDEN;
    add_phase(c, PHASE_ROWS)->gather = true;
    add_step(c, op->w ? STEP_NORM : STEP_COPY, op)->w = vectors_copy(&c->v, op->w);
}

/* From here on it is over the rows that are wanted for anything. */
static void compile_keep(struct compiler *c)
{
    struct phase *p = add_phase(c, PHASE_KEEP);
    for (int buf = 0; buf < N_MODEL_BUFS; buf++)
        p->keeps |= (uint64_t)plan_reads_later(c->m, c->op, (enum model_buf)buf) << buf;
    c->rows = ROWS_KEPT;
    c->packed_formats = 0;
}

static void compile_layer_norm(struct compiler *c, const struct op *op)
{
    struct step *s = add_step(c, STEP_LAYER_NORM, op);
    s->w = op->w ? vectors_copy(&c->v, op->w) : vectors_fill(&c->v, op->n_out, 1.0f);
    s->bias = op->bias ? vectors_copy(&c->v, op->bias) : vectors_fill(&c->v, op->n_out, 0.0f);
}

static void compile_attention(struct compiler *c, const struct op *op)
{
    struct phase *p = add_phase(c, PHASE_ATTENTION);
    p->layer = op->layer;
    p->n_head = op->n_head;
    p->n_head_kv = op->n_head_kv;
    p->n_channels = op->n_out;
    p->scale = op->scale;
    p->cap = op->cap;
    p->window = op->window;
    p->window_kind = op->window_kind;
    p->sinks = vectors_copy(&c->v, op->w);
    p->slopes = op->alibi > 0.0f ? vectors_slopes(&c->v, op) : NULL;
    forget_packed(c, op->out);
}

/* A matrix for each expert; those of gate and up share a phase. */
static enum err compile_experts(struct compiler *c, const struct op *op)
{
    struct phase *p = last_phase(c);
    if (!p || p->kind != PHASE_EXPERTS || (op - 1)->in != op->in) {
        const struct op *end = c->m->ops + c->m->n_ops;
        uint64_t formats = 0;
        for (const struct op *o = op; o < end && o->kind == OP_EXPERTS && o->in == op->in; o++) {
            enum err err = add_format(c, o, &formats);
            if (err)
                return err;
        }
        struct step *s = add_step_over(c, STEP_PACK, NULL, true);
        s->in = op->in;
        s->n = op->n_in;
        s->gather = op->in != BUF_EXPERT_GATE;
        s->formats = formats;
        s->any_rows = true;
        p = add_phase(c, PHASE_EXPERTS);
    }
    const uint32_t n_panels = p->n_panels, n = c->m->hp.n_expert;
    const size_t row_bytes = op->w->n_bytes / op->w->ne[1] / n;
    const float *bias = vectors_copy(&c->v, op->bias), *factors = vectors_copy(&c->v, op->factor);
    for (uint32_t i = 0; i < n; i++) {
        struct matrix *x = add_matrix(c, p, op, bias ? bias + (size_t)i * op->n_out : NULL);
        x->expert = true;
        x->scale = factors ? factors + i : NULL;
        x->tensor.n_bytes = row_bytes * op->n_out;
        x->tensor.data += (i * op->w->ne[1] + op->first_row) * row_bytes;
        x->tensor.ne[1] = op->n_out;
        x->tensor.ne[2] = 1;
    }
    p->n_panels = n_panels + c->b->matrices[c->b->n_matrices - 1].n_panels;
    return OK;
}

static void compile_select(struct compiler *c, const struct op *op)
{
    struct step *s = add_step(c, STEP_SELECT, op);
    s->bias = vectors_copy(&c->v, op->bias);
    s->w = vectors_copy(&c->v, op->w);
}

static void compile_conv(struct compiler *c, const struct op *op)
{
    struct phase *p = add_phase(c, PHASE_CONV);
    p->layer = op->layer;
    p->first_channel = op->first_channel;
    p->n_channels = op->n_out;
    p->w = vectors_taps(&c->v, op, c->m->hp.conv_width);
    p->bias = vectors_copy(&c->v, op->bias);
    p->gated = op->gated;
    forget_packed(c, op->out);
}

static void compile_recur(struct compiler *c, const struct op *op)
{
    struct phase *p = add_phase(c, PHASE_RECUR);
    p->layer = op->layer;
    p->n_head = op->n_head;
    p->w = op->recur == RECUR_SELECTIVE ? vectors_tiles(&c->v, op, c->m->hp.rec_key)
                                        : vectors_copy(&c->v, op->w);
    p->bias = vectors_copy(&c->v, op->bias);
    p->n_channels = op->n_head;
    p->recur = op->recur;
    p->tiled = op->tiled;
    forget_packed(c, op->out);
}

static void compile_head_norm(struct compiler *c, const struct op *op)
{
    const uint32_t dim = op->head_dim;
    struct step *s = add_step(c, STEP_HEAD_NORM, op);
    if (op->kind == OP_HEAD_UNIT) { /* x / sqrt(dim) / sqrt(mean(x^2) + eps / dim) */
        s->w = vectors_fill(&c->v, dim, 1.0f / sqrtf((float)dim));
        s->eps /= (float)dim;
        return;
    }
    s->w = op->w ? vectors_copy(&c->v, op->w) : vectors_fill(&c->v, dim, 1.0f);
    s->w_step = op->w && op->w->ne[1] > 1 ? dim : 0;
}

static enum err compile_op(struct compiler *c, const struct op *op)
{
    switch (op->kind) {
    case OP_EMBED:
        if (op->out == BUF_X)
            add_step(c, STEP_ANGLES, NULL);
        add_step(c, STEP_EMBED, op)->table = op->w;
        return OK;
    case OP_ADD_POSITION:
        add_step(c, STEP_ADD_POSITION, op)->w = vectors_table(&c->v, op->w);
        return OK;
    case OP_ADD_TYPE:
        add_step(c, STEP_ADD_TYPE, op)->w = vectors_table(&c->v, op->w);
        c->b->steps[c->b->n_steps - 1].n_types = (uint32_t)op->w->ne[1];
        return OK;
    case OP_LAYER_NORM:
        compile_layer_norm(c, op);
        return OK;
    case OP_UNARY:
        if (op->unary == UNARY_XIELU)
            add_step(c, STEP_XIELU, op)->xielu = op->xielu;
        else if (op->out == BUF_EXPERT_GATE)
            add_step_over(c, STEP_UNARY, op, true)->n = op->n_out / op->n_head;
        else
            add_step(c, STEP_UNARY, op);
        return OK;
    case OP_HIDDEN:
        compile_hidden(c, op);
        return OK;
    case OP_TANH: /* as a cap of 1 */
        add_step(c, STEP_CAP, op)->cap = 1.0f;
        return OK;
    case OP_NORM:
        add_step(c, STEP_NORM, op)->w = vectors_copy(&c->v, op->w);
        return OK;
    case OP_HEAD_NORM:
    case OP_HEAD_UNIT:
        compile_head_norm(c, op);
        return OK;
    case OP_CONV:
        compile_conv(c, op);
        return OK;
    case OP_RATES: {
        struct step *s = add_step(c, STEP_RATES, op);
        s->w = vectors_copy(&c->v, op->w);
        s->bias = vectors_copy(&c->v, op->bias);
        return OK;
    }
    case OP_RECUR:
        compile_recur(c, op);
        return OK;
    case OP_HEAD_LAYER_NORM: {
        struct step *s = add_step(c, STEP_HEAD_LAYER_NORM, op);
        s->w = vectors_copy(&c->v, op->w);
        s->bias = op->bias ? vectors_copy(&c->v, op->bias) : vectors_fill(&c->v, op->n_out, 0.0f);
        return OK;
    }
    case OP_HEAD_LINEAR:
        return compile_head_linear(c, op);
    case OP_HEAD_COPY:
        add_step(c, STEP_HEAD_COPY, op);
        return OK;
    case OP_HEAD_SCALE:
        add_step(c, STEP_HEAD_SCALE, op);
        return OK;
    case OP_ROPE:
    case OP_ROPE_STORE:
        add_step(c, op->kind == OP_ROPE ? STEP_ROPE : STEP_ROPE_STORE, op);
        forget_packed(c, BUF_K);
        forget_packed(c, BUF_Q);
        return OK;
    case OP_GATED:
        if (op->out == BUF_EXPERT_GATE)
            add_step_over(c, STEP_GATED, op, true)->n = op->n_out / op->n_head;
        else
            add_step(c, STEP_GATED, op);
        return OK;
    case OP_ADD:
        add_step(c, STEP_ADD, op);
        return OK;
    case OP_ADD_GATED:
        add_step(c, STEP_ADD_GATED, op);
        return OK;
    case OP_SCALE: /* as no cap */
        add_step(c, STEP_CAP, op);
        return OK;
    case OP_CLAMP:
        add_step(c, STEP_CLAMP, op);
        return OK;
    case OP_MUL:
    case OP_SPARSE:
    case OP_MATCH:
    case OP_FOLD:
    case OP_PREDICT:
    case OP_CORRECT:
    case OP_SPREAD: {
        struct step *s = add_step(c, STEP_STREAMS, op);
        s->op = op->kind;
        s->w = vectors_copy(&c->v, op->w);
        return OK;
    }
    case OP_SELECT:
        compile_select(c, op);
        add_phase(c, PHASE_SORT)->n_used = op->n_head;
        return OK;
    case OP_EXPERTS:
        return compile_experts(c, op);
    case OP_MIX:
        add_step(c, STEP_MIX, op);
        return OK;
    case OP_ATTENTION:
        compile_attention(c, op);
        return OK;
    case OP_LINEAR:
        return compile_linear(c, op);
    case OP_LOGITS:
        return compile_logits(c, op);
    }
    return err_set(c->e, ERR_UNSUPPORTED, "an op of kind %d", (int)op->kind);
}

enum err cpu_compile(struct cpu_backend *b, struct err_info *e)
{
    struct compiler c = {.b = b, .m = b->model, .e = e};
    const uint32_t n_ops = b->model->n_ops; /* an op makes at most two steps and three phases */
    const uint32_t last_storing = plan_last_storing(b->model);
    size_t n_matrices = 1;
    for (uint32_t i = 0; i < n_ops; i++)
        n_matrices += b->model->ops[i].kind == OP_EXPERTS       ? b->model->hp.n_expert
                      : b->model->ops[i].kind == OP_HEAD_LINEAR ? b->model->ops[i].n_head
                                                                : 1;
    b->phases = mem_zalloc((size_t)n_ops * 3 + 1, sizeof *b->phases);
    b->steps = mem_zalloc((size_t)n_ops * 2 + 1, sizeof *b->steps);
    b->matrices = mem_zalloc(n_matrices, sizeof *b->matrices);
    enum err err = vectors_alloc(&c.v, c.m, e);
    b->vectors = c.v.data;
    for (c.op = 0; !err && c.op < n_ops; c.op++) {
        err = compile_op(&c, &b->model->ops[c.op]);
        if (!err && c.op == last_storing)
            compile_keep(&c);
    }
    if (!err)
        cpu_find_parts(b);
    return err;
}
