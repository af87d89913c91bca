/* The launches of a step, one after the other: what they name becomes addresses. */
#include "backend/cuda/cuda.h"

#include <math.h>

static const float *vector_at(const struct cuda_backend *b, uint32_t i)
{
    return i == NO_VECTOR ? NULL : b->vectors + b->vector_list[i].offset;
}

static struct cuda_act act_of(struct cuda_act act, const struct launch *l, uint32_t k)
{
    act.k = k;
    act.forms = l->forms;
    act.heads = l->in_step || l->out_step ? l->heads : 0;
    act.in_step = l->in_step;
    return act;
}

static struct cuda_norm norm_of(const struct cuda_backend *b, const struct launch *l)
{
    const struct op *op = l->op;
    const float eps = op->eps > 0.0f ? op->eps : b->model->hp.norm_eps;
    const bool unit = op->kind == OP_HEAD_UNIT;
    return (struct cuda_norm){.in = b->bufs[l->in],
                              .out = b->bufs[l->out],
                              .n = l->n,
                              .heads = l->heads,
                              .eps = unit ? eps / (float)l->n : eps,
                              .size = unit ? 1.0f / sqrtf((float)l->n) : 1.0f,
                              .w = vector_at(b, l->w),
                              .w_step = op->w && op->w->ne[1] > 1 ? l->n : 0,
                              .gather = l->gather,
                              .bare = op->kind != OP_HIDDEN};
}

static struct cuda_layer_norm layer_norm_of(const struct cuda_backend *b, const struct launch *l)
{
    return (struct cuda_layer_norm){.in = b->bufs[l->in],
                                    .out = b->bufs[l->out],
                                    .n = l->n,
                                    .eps = b->model->hp.norm_eps,
                                    .w = vector_at(b, l->w),
                                    .bias = vector_at(b, l->bias),
                                    .gather = l->gather};
}

static void launch_head_copy(const struct cuda_backend *b,
                             const struct cuda_at *at,
                             const struct launch *l)
{
    const struct cuda_head_copy op = {.in = b->bufs[l->in],
                                      .out = b->bufs[l->out],
                                      .heads = l->op->n_head,
                                      .n = l->n,
                                      .in_step = l->op->in_step,
                                      .out_step = l->op->out_step,
                                      .front = l->op->front,
                                      .zero = l->op->zero};
    cuda_head_copy(at, &op);
}

static struct cuda_linear linear_of(const struct cuda_backend *b,
                                    const struct launch *l,
                                    struct cuda_act act)
{
    const struct cuda_matrix *w = &b->matrices[l->matrix].m;
    return (struct cuda_linear){.w = *w,
                                .act = act_of(act, l, w->n_in),
                                .bias = vector_at(b, l->bias),
                                .factors = vector_at(b, l->factors),
                                .out = b->bufs[l->out],
                                .add = l->add,
                                .scratch = b->linear_scratch,
                                .out_step = l->out_step};
}

/* Without `store` K and V stay where they are. */
static void launch_rope(const struct cuda_backend *b,
                        const struct cuda_at *at,
                        const struct launch *l)
{
    const struct model_hparams *hp = &b->model->hp;
    const struct op *o = l->op;
    struct cuda_rope_store op = {.q = b->bufs[BUF_Q],
                                 .k = b->bufs[BUF_K],
                                 .v = b->bufs[BUF_V],
                                 .angles = o->rope == ROPE_NONE ? NULL : b->angles[o->rope],
                                 .n_head = o->n_head,
                                 .dims = o->rope == ROPE_NONE ? 0 : b->model->ropes[o->rope].n_dims,
                                 .adjacent = b->model->rope == ROPE_ADJACENT,
                                 .kv = b->layers[o->layer],
                                 .first = hp->rope_first};
    if (o->temper) {
        op.temper_scale = hp->temper_scale;
        op.temper_length = hp->temper_length;
        op.temper_offset = hp->temper_offset;
    }
    if (l->kind == LAUNCH_ROPE) {
        if (!op.angles)
            return;
        op.kv.base = NULL;
        op.kv.n_head_kv = o->n_head_kv ? o->n_head_kv : o->n_head;
        op.kv.head_dim = o->head_dim;
        if (!o->n_head_kv) /* K is another layer's, which has rotated it */
            op.k.p = NULL;
    }
    cuda_rope_store(at, &op);
}

static void launch_attention(const struct cuda_backend *b,
                             const struct cuda_at *at,
                             const struct launch *l)
{
    const struct op *o = l->op;
    const struct cuda_attention op = {.q = b->bufs[BUF_Q],
                                      .out = b->bufs[l->out],
                                      .kv = b->layers[o->layer],
                                      .n_head = o->n_head,
                                      .scale = o->scale,
                                      .cap = o->cap,
                                      .window = o->window,
                                      .window_kind = (int)o->window_kind,
                                      .causal = b->model->hp.causal,
                                      .sinks = vector_at(b, l->w),
                                      .alibi = o->alibi,
                                      .scratch = b->attention_scratch};
    cuda_attention(at, &op);
}

static struct cuda_gated gated_of(const struct cuda_backend *b, const struct launch *l)
{
    const struct cuda_experts *x = &b->experts;
    const struct cuda_buf in2 = b->bufs[l->op->in2];
    return (struct cuda_gated){
        .kind = (int)l->op->gate,
        .scale = l->scale,
        .cap = l->cap,
        .in = b->bufs[l->in],
        .in2 = {in2.p + l->op->in2_first, in2.stride},
        .out = b->bufs[l->out],
        .n = l->n,
        .n_places = l->places ? x->first + x->n_expert : NULL,
        .most_places = l->places ? x->most_places : 0,
        .weights = l->places ? x->place_weight : NULL,
    };
}

static struct cuda_unary unary_of(const struct cuda_backend *b, const struct launch *l)
{
    const struct cuda_experts *x = &b->experts;
    const struct op *op = l->op;
    return (struct cuda_unary){
        .kind = (int)op->unary,
        .positive = op->xielu.positive,
        .negative = op->xielu.negative,
        .beta = op->xielu.beta,
        .eps = op->xielu.eps,
        .buf = b->bufs[l->out],
        .n = l->n,
        .n_places = l->places ? x->first + x->n_expert : NULL,
        .most_places = l->places ? x->most_places : 0,
    };
}

static struct cuda_add add_of(const struct cuda_backend *b, const struct launch *l)
{
    struct cuda_add op = {
        .in = b->bufs[l->in], .out = b->bufs[l->out], .n = l->n, .scale = l->scale};
    if (l->kind == LAUNCH_ADD_GATED)
        op.gate = b->bufs[l->op->in2];
    return op;
}

/* Experts, as many of a row as the layer has. */
static struct cuda_experts experts_of(const struct cuda_backend *b, const struct launch *l)
{
    struct cuda_experts x = b->experts;
    x.n_used = l->n_used;
    return x;
}

static void launch_select(const struct cuda_backend *b,
                          const struct cuda_at *at,
                          const struct launch *l)
{
    const struct model_hparams *hp = &b->model->hp;
    const struct cuda_gating gating = {
        .over_all = !hp->expert_norm,
        .norm = hp->expert_norm,
        .scale = hp->expert_scale,
        .sigmoid = hp->expert_sigmoid,
        .mixer = hp->expert_mixer,
        .bias = vector_at(b, l->bias),
        .each = vector_at(b, l->w),
        .n_groups = hp->n_expert_group,
        .n_groups_used = hp->n_expert_group_used,
    };
    const struct cuda_experts x = experts_of(b, l);
    cuda_experts_select(at, &x, b->bufs[l->in], &gating);
    cuda_experts_sort(at, &x);
}

static void launch_conv(const struct cuda_backend *b,
                        const struct cuda_at *at,
                        const struct launch *l)
{
    const struct cuda_conv op = {.x = b->bufs[l->out],
                                 .states = b->states[l->op->layer],
                                 .w = vector_at(b, l->w),
                                 .bias = vector_at(b, l->bias),
                                 .n = l->op->n_out,
                                 .width = b->model->hp.conv_width,
                                 .gated = l->op->gated,
                                 .first = l->op->first_channel,
                                 .step = b->model->hp.conv_channels};
    cuda_conv(at, &op);
}

static void launch_rates(const struct cuda_backend *b,
                         const struct cuda_at *at,
                         const struct launch *l)
{
    const struct cuda_rates op = {.in = b->bufs[l->in],
                                  .rate = b->bufs[BUF_RATE],
                                  .beta = b->bufs[BUF_BETA],
                                  .a = vector_at(b, l->w),
                                  .bias = vector_at(b, l->bias),
                                  .n_head = l->op->n_head,
                                  .per = l->op->in_step,
                                  .delta = l->op->recur == RECUR_DELTA};
    cuda_rates(at, &op);
}

static void launch_recur(const struct cuda_backend *b,
                         const struct cuda_at *at,
                         const struct launch *l)
{
    const struct model_hparams *hp = &b->model->hp;
    const bool fixed = l->op->recur == RECUR_FIXED, delta = !fixed && l->op->recur != RECUR_SCAN;
    const bool first = l->op->recur == RECUR_READ_FIRST;
    const bool apart = first || l->op->recur == RECUR_DELTA_APART;
    const struct cuda_buf none = {0};
    const struct cuda_recur op = {.mix = b->bufs[l->in],
                                  .rate = fixed ? none : b->bufs[BUF_RATE],
                                  .beta = fixed ? none : b->bufs[BUF_BETA],
                                  .out = b->bufs[l->out],
                                  .k = b->bufs[BUF_K],
                                  .v = b->bufs[BUF_V],
                                  .unit = b->bufs[first ? BUF_Q : BUF_REC_KEY],
                                  .states = b->states[l->op->layer],
                                  .skip = fixed ? NULL : vector_at(b, l->w),
                                  .fixed = fixed ? vector_at(b, l->w) : NULL,
                                  .n_head = l->op->n_head,
                                  .n_group = hp->n_rec_group,
                                  .n_key = hp->rec_key,
                                  .n_value = hp->rec_value,
                                  .scale = delta ? 1.0f / sqrtf((float)hp->rec_key) : 1.0f,
                                  .delta = delta,
                                  .each = apart || l->op->recur == RECUR_DELTA_EACH,
                                  .apart = apart,
                                  .first = first,
                                  .tiled = l->op->tiled};
    cuda_recur(at, &op);
}

static void launch_selective(const struct cuda_backend *b,
                             const struct cuda_at *at,
                             const struct launch *l)
{
    const struct cuda_selective op = {.x = b->bufs[l->in],
                                      .step = b->bufs[BUF_RATE],
                                      .k = b->bufs[BUF_REC_KEY],
                                      .q = b->bufs[BUF_REC_QUERY],
                                      .out = b->bufs[l->out],
                                      .states = b->states[l->op->layer],
                                      .a = vector_at(b, l->w),
                                      .skip = vector_at(b, l->bias),
                                      .n = l->op->n_head,
                                      .n_key = b->model->hp.rec_key};
    cuda_selective(at, &op);
}

static void launch_streams(const struct cuda_backend *b,
                           const struct cuda_at *at,
                           const struct launch *l)
{
    const struct cuda_streams op = {.in = b->bufs[l->in],
                                    .coefs = b->bufs[l->op->in2],
                                    .out = b->bufs[l->out],
                                    .n_part = l->op->n_head,
                                    .n = l->n,
                                    .scale = l->scale};
    switch (l->op->kind) {
    case OP_MATCH:
        cuda_streams_match(at, &op);
        break;
    case OP_FOLD:
        cuda_streams_fold(at, &op);
        break;
    case OP_PREDICT:
        cuda_streams_predict(at, &op);
        break;
    case OP_CORRECT:
        cuda_streams_correct(at, &op);
        break;
    default: /* OP_SPREAD */
        cuda_streams_spread(at, &op);
    }
}

static struct cuda_stage stage_of(const struct cuda_backend *b, const struct launch *l)
{
    switch (l->kind) {
    case LAUNCH_NORM:
        return (struct cuda_stage){.kind = CUDA_STAGE_NORM, .norm = norm_of(b, l)};
    case LAUNCH_LAYER_NORM:
        return (struct cuda_stage){.kind = CUDA_STAGE_LAYER_NORM,
                                   .layer_norm = layer_norm_of(b, l)};
    case LAUNCH_GATED:
        return (struct cuda_stage){.kind = CUDA_STAGE_GATED, .gated = gated_of(b, l)};
    case LAUNCH_UNARY:
        return (struct cuda_stage){.kind = CUDA_STAGE_UNARY, .unary = unary_of(b, l)};
    case LAUNCH_MIX:
        return (struct cuda_stage){.kind = CUDA_STAGE_MIX,
                                   .mix = {b->bufs[l->in], b->bufs[l->out], l->n}};
    default: /* LAUNCH_ADD, LAUNCH_ADD_GATED */
        return (struct cuda_stage){.kind = CUDA_STAGE_ADD, .add = add_of(b, l)};
    }
}

/* A stage by itself. */
static void launch_stage(const struct cuda_backend *b,
                         const struct cuda_at *at,
                         const struct launch *l)
{
    const struct cuda_stage s = stage_of(b, l);
    const struct cuda_experts x = experts_of(b, l);
    switch (s.kind) {
    case CUDA_STAGE_NORM:
        cuda_norm(at, &s.norm);
        break;
    case CUDA_STAGE_LAYER_NORM:
        cuda_layer_norm(at, &s.layer_norm);
        break;
    case CUDA_STAGE_GATED:
        cuda_gated(at, &s.gated);
        break;
    case CUDA_STAGE_UNARY:
        cuda_unary(at, &s.unary);
        break;
    case CUDA_STAGE_MIX:
        cuda_experts_mix(at, &x, &s.mix);
        break;
    case CUDA_STAGE_ADD:
        cuda_add(at, &s.add);
        break;
    }
}

/* Stages, and packing behind the last of them: launches l, l + 1, ... */
static void launch_stages(const struct cuda_backend *b,
                          const struct cuda_at *at,
                          const struct launch *l)
{
    const struct launch *last = l + l->joined;
    const bool packs = last->kind == LAUNCH_PACK || last->kind == LAUNCH_EXPERT_PACK;
    const struct cuda_act act =
        act_of(last->kind == LAUNCH_EXPERT_PACK ? b->expert_act : b->act, last, last->n);
    const struct cuda_experts x = experts_of(b, l);
    struct cuda_stages s = {
        .n = l->joined + !packs, .act = packs ? &act : NULL, .experts = x.n_expert ? &x : NULL};
    for (uint32_t i = 0; i < s.n; i++)
        s.of[i] = stage_of(b, &l[i]);
    cuda_rows_stages(at, &s);
}

static void launch_linears(const struct cuda_backend *b,
                           const struct cuda_at *at,
                           const struct launch *l,
                           uint32_t n)
{
    const bool experts = l->kind == LAUNCH_EXPERT_LINEAR;
    const struct cuda_experts x = experts_of(b, l);
    struct cuda_linear ops[CUDA_LINEAR_GROUP];
    for (uint32_t i = 0; i < n; i++)
        ops[i] = linear_of(b, &l[i], experts ? b->expert_act : b->act);
    if (experts)
        cuda_experts_linear(at, &x, ops, n);
    else
        cuda_linear(at, ops, n);
}

static void launch_one(const struct cuda_backend *b,
                       const struct cuda_at *at,
                       const struct launch *l)
{
    const struct model_hparams *hp = &b->model->hp;
    struct cuda_act act;
    struct cuda_experts x;
    switch (l->kind) {
    case LAUNCH_ANGLES:
        cuda_angles(at,
                    b->inv_freq[l->rope],
                    b->model->ropes[l->rope].n_dims,
                    b->model->ropes[l->rope].scale,
                    b->angles[l->rope]);
        break;
    case LAUNCH_EMBED:
        cuda_embed(at, &b->matrices[l->matrix].m, b->bufs[l->out], l->scale);
        break;
    case LAUNCH_ADD_POSITION:
        cuda_add_position(at, b->bufs[l->out], vector_at(b, l->w), l->n);
        break;
    case LAUNCH_ADD_TYPE:
        cuda_add_type(at, b->bufs[l->out], vector_at(b, l->w), l->n, (uint32_t)l->op->w->ne[1]);
        break;
    case LAUNCH_NORM:
    case LAUNCH_LAYER_NORM:
    case LAUNCH_GATED:
    case LAUNCH_UNARY:
    case LAUNCH_ADD:
    case LAUNCH_ADD_GATED:
    case LAUNCH_MIX:
        launch_stage(b, at, l);
        break;
    case LAUNCH_HEAD_LAYER_NORM:
        cuda_head_layer_norm(at,
                             b->bufs[l->out],
                             l->heads,
                             l->n,
                             l->op->eps > 0.0f ? l->op->eps : hp->norm_eps,
                             vector_at(b, l->w),
                             vector_at(b, l->bias));
        break;
    case LAUNCH_HEAD_COPY:
        launch_head_copy(b, at, l);
        break;
    case LAUNCH_HEAD_SCALE:
        cuda_head_scale(at, b->bufs[l->in], b->bufs[l->out], l->op->n_head, l->op->head_dim);
        break;
    case LAUNCH_PACK:
        act = act_of(b->act, l, l->n);
        cuda_act_pack(at, b->bufs[l->in], &act);
        break;
    case LAUNCH_LINEAR:
    case LAUNCH_EXPERT_LINEAR:
        launch_linears(b, at, l, 1);
        break;
    case LAUNCH_ROPE:
    case LAUNCH_ROPE_STORE:
        launch_rope(b, at, l);
        break;
    case LAUNCH_ATTENTION:
        launch_attention(b, at, l);
        break;
    case LAUNCH_CAP:
        cuda_tanh_cap(at, b->bufs[l->out], l->n, l->scale, l->cap);
        break;
    case LAUNCH_CLAMP:
        cuda_clamp(at, b->bufs[l->out], l->n, l->cap);
        break;
    case LAUNCH_MUL:
        cuda_mul(at, b->bufs[l->in], b->bufs[l->out], vector_at(b, l->w), l->n);
        break;
    case LAUNCH_STREAMS:
        launch_streams(b, at, l);
        break;
    case LAUNCH_SPARSE:
        cuda_sparse(at, b->bufs[l->out], l->n, l->scale);
        break;
    case LAUNCH_CONV:
        launch_conv(b, at, l);
        break;
    case LAUNCH_RATES:
        launch_rates(b, at, l);
        break;
    case LAUNCH_RECUR:
        if (l->op->recur == RECUR_SELECTIVE)
            launch_selective(b, at, l);
        else
            launch_recur(b, at, l);
        break;
    case LAUNCH_SELECT:
        launch_select(b, at, l);
        break;
    case LAUNCH_EXPERT_PACK:
        act = act_of(b->expert_act, l, l->n);
        x = experts_of(b, l);
        cuda_experts_pack(at, &x, b->bufs[l->in], l->places, &act);
        break;
    }
}

cudaError_t cuda_walk(struct cuda_backend *b, const struct cuda_bounds *bounds)
{
    struct cuda_at at = {.step = cuda_step_at(b, bounds),
                         .bounds = *bounds,
                         .block_shared = b->block_shared,
                         .processors = b->processors,
                         .wgmma = b->wgmma == GPU_WGMMA_USED,
                         .stream = b->stream};
    /* up to one that is refused: what a capture says of those behind it would hide why */
    const bool anything_wanted = bounds->logit_rows > 0 || bounds->hidden_rows > 0;
    uint32_t done = 0; /* by this launch */
    for (uint32_t i = 0; i < b->n_launches && cudaPeekAtLastError() == cudaSuccess; i += done) {
        const struct launch *l = &b->launches[i];
        done = b->apart ? 1 : 1 + l->joined;
        at.rows = l->rows;
        if (cuda_rows_bound(&at) == 0 || (l->last && !anything_wanted))
            continue; /* nobody wants these rows */
        if (done == 1)
            launch_one(b, &at, l);
        else if (l->kind == LAUNCH_LINEAR || l->kind == LAUNCH_EXPERT_LINEAR)
            launch_linears(b, &at, l, done);
        else
            launch_stages(b, &at, l);
    }
    return cudaGetLastError();
}
