/* The plan of recurrent layers.
 *
 *      LFM2          B, C, x = in_proj(h);  out_proj(C conv(B x))
 *      delta rule    MIX = conv(attn_qkv(h)), with rates; ssm_out(norm by head(REC) silu(gate(h)))
 *      for each key  MIX = conv(attn_q, _k, _v(h)); attn_output(norm by head(REC) sigmoid(gate(h)))
 *      fixed rates   MIX = silu(attn_qkv(h));  attn_output(norm(REC) sigmoid(attn_gate(h)))
 *      Mamba-2       gate, MIX, rates = ssm_in(h);  ssm_out(norm by group(REC silu(gate)))
 *      PLaMo 2       gate, x by head = ssm_in(h);  key, query, r = ssm_x(conv(x));
 *                    MIX = conv(x), key, query;  rates = ssm_dt(r);  ssm_out(REC silu(gate))
 *      Mamba         x, gate = ssm_in(h);  MIX = conv(x);  r, key, query = ssm_x(MIX);
 *                    steps = softplus(ssm_dt(r));  ssm_out(REC silu(gate)) */
#include "model/build.h"
#include "model/keys.h"

#include <math.h>
#include <string.h>

/* A vector of the layer without "weight" in its name. */
static const struct gguf_tensor *take_bare(struct builder *b,
                                           const char *stem,
                                           uint64_t cols,
                                           uint64_t rows)
{
    return plan_take(b, plan_bare_name(b, stem), cols, rows, F32_ONLY, REQUIRED);
}

static void add_conv(struct builder *b, const char *stem, bool gated, enum presence bias)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t width = hp->conv_width, n = hp->conv_channels;
    struct op *op = plan_add(b, OP_CONV, BUF_MIX, BUF_MIX);
    op->n_in = op->n_out = n;
    op->w = plan_take(b, plan_name(b, stem, "weight"), width, n, F32_ONLY, REQUIRED);
    op->bias = plan_take(b, plan_name(b, stem, "bias"), n, 1, F32_ONLY, bias);
    op->gated = gated;
}

static void add_short_convolution(struct builder *b, enum model_buf in, enum model_buf out)
{
    const uint32_t n = b->m->hp.n_embd, ns[] = {n, n, n};
    const enum model_buf bufs[] = {BUF_MIX, BUF_REC_GATE, BUF_REC};
    plan_stacked(b, "shortconv.in_proj", in, bufs, ns, 3, ABSENT);
    plan_product(b, GATE_PLAIN, BUF_MIX, BUF_REC, BUF_MIX);
    add_conv(b, "shortconv.conv", false, ABSENT);
    plan_product(b, GATE_PLAIN, BUF_REC_GATE, BUF_MIX, BUF_REC);
    plan_linear(b, "shortconv.out_proj", BUF_REC, n, out, n, ABSENT);
}

static struct op *add_heads(struct builder *b, enum op_kind kind, enum recur_kind recur)
{
    struct op *op = plan_add(
        b, kind, kind == OP_RATES ? BUF_RATE : BUF_MIX, kind == OP_RATES ? BUF_RATE : BUF_REC);
    op->recur = recur;
    op->n_head = b->m->hp.n_rec_head;
    return op;
}

/* The norm of what heads read, n values each with a row of its own or one for all. */
static void add_rec_norm(struct builder *b, uint32_t n, uint32_t n_rows, enum presence presence)
{
    if (presence == OPTIONAL && !plan_has(b, "ssm_norm"))
        return;
    const struct gguf_tensor *w =
        plan_take(b, plan_name(b, "ssm_norm", "weight"), n, n_rows, F32_ONLY, REQUIRED);
    plan_head_norm(b, BUF_REC, b->m->buf_width[BUF_REC], w)->head_dim = n;
}

/* The first files of Qwen3-Next have one matrix in place of attn_qkv and attn_gate. Its rows are,
 * of each group of heads, the query, the key, the values of its heads and their gates; they are
 * copied as they are. */
static void split_mixed(struct builder *b,
                        const struct gguf_tensor **qkv,
                        const struct gguf_tensor **gate)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint64_t n_group = hp->n_rec_group, n_gate = b->m->buf_width[BUF_REC];
    const struct gguf_tensor *all = plan_take(b,
                                              plan_name(b, "ssm_in", "weight"),
                                              hp->n_embd,
                                              hp->conv_channels + n_gate,
                                              ANY_TYPE,
                                              REQUIRED);
    if (!all)
        return;
    const size_t row_bytes = all->n_bytes / all->ne[1];
    const uint64_t ne_qkv[3] = {hp->n_embd, hp->conv_channels, 1};
    const uint64_t ne_gate[3] = {hp->n_embd, n_gate, 1};
    uint8_t *to[4]; /* queries, keys, values, gates */
    *qkv = plan_make(b, all, all->type, ne_qkv, row_bytes, &to[0]);
    if (*qkv)
        *gate = plan_make(b, all, all->type, ne_gate, row_bytes, &to[3]);
    if (!*gate)
        return;
    const size_t n_key = hp->rec_key * row_bytes, n_value = n_gate / n_group * row_bytes;
    const size_t n[4] = {n_key, n_key, n_value, n_value};
    const uint8_t *from = all->data;
    to[1] = to[0] + n_group * n_key;
    to[2] = to[1] + n_group * n_key;
    for (uint64_t g = 0; g < n_group; g++) {
        for (int i = 0; i < 4; from += n[i++])
            memcpy(to[i] + g * n[i], from, n[i]);
    }
    gguf_drop_pages(b->m->gguf, all, 0, all->n_bytes);
}

/* What is convolved, and what gates the result. */
static void add_delta_inputs(struct builder *b, enum model_buf in)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_embd = hp->n_embd, n = b->m->buf_width[BUF_REC];
    if (b->arch->recurrence == RECURRENCE_DELTA_MIXED && plan_has(b, "ssm_in")) {
        const struct gguf_tensor *qkv = NULL, *gate = NULL;
        split_mixed(b, &qkv, &gate);
        plan_linear_of(b, qkv, in, n_embd, BUF_MIX, hp->conv_channels);
        plan_linear_of(b, gate, in, n_embd, BUF_REC_GATE, n);
        return;
    }
    plan_linear(b, "attn_qkv", in, n_embd, BUF_MIX, hp->conv_channels, ABSENT);
    plan_linear(b, "attn_gate", in, n_embd, BUF_REC_GATE, n, ABSENT);
}

static void add_delta(struct builder *b, enum model_buf in, enum model_buf out)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_embd = hp->n_embd, n_head = hp->n_rec_head, n = b->m->buf_width[BUF_REC];
    const bool mixed = b->arch->recurrence == RECURRENCE_DELTA_MIXED;
    add_delta_inputs(b, in);
    if (mixed) { /* two a head, into a buffer that is not in use yet */
        plan_linear(b, "ssm_ba", in, n_embd, BUF_REC, 2 * n_head, ABSENT);
    } else {
        plan_linear(b, "ssm_beta", in, n_embd, BUF_BETA, n_head, ABSENT);
        plan_linear(b, "ssm_alpha", in, n_embd, BUF_RATE, n_head, ABSENT);
    }
    struct op *op = add_heads(b, OP_RATES, RECUR_DELTA);
    op->in = mixed ? BUF_REC : BUF_RATE;
    op->in_step = mixed ? n_head / hp->n_rec_group : 0;
    op->bias = plan_take(b, plan_name(b, "ssm_dt", "bias"), n_head, 1, F32_ONLY, REQUIRED);
    op->w = take_bare(b, "ssm_a", n_head, 1);
    add_conv(b, "ssm_conv1d", true, ABSENT);
    op = plan_add(b, OP_HEAD_UNIT, BUF_MIX, BUF_MIX);
    op->head_dim = hp->rec_key;
    op->n_in = op->n_out = 2 * hp->n_rec_group * hp->rec_key;
    add_heads(b, OP_RECUR, RECUR_DELTA)->tiled = !mixed;
    add_rec_norm(b, hp->rec_value, 1, REQUIRED);
    plan_product(b, GATE_SILU, BUF_REC_GATE, BUF_REC, BUF_REC);
    plan_linear(b, "ssm_out", BUF_REC, n, out, n_embd, ABSENT);
}

/* The weights of three convolutions as those of one. */
static const struct gguf_tensor *join_convs(struct builder *b, uint32_t n)
{
    static const char *const stems[] = {"ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v"};
    const uint32_t width = b->m->hp.conv_width;
    const uint64_t ne[3] = {width, 3 * (uint64_t)n, 1};
    const size_t row_bytes = width * sizeof(float);
    const struct gguf_tensor *all = NULL;
    uint8_t *data = NULL;
    for (size_t i = 0; i < 3; i++) {
        const struct gguf_tensor *w =
            plan_take3(b, plan_name(b, stems[i], "weight"), width, 1, n, F32_ONLY, REQUIRED);
        if (w && i == 0)
            all = plan_make(b, w, GGUF_TYPE_F32, ne, row_bytes, &data);
        if (w && data)
            memcpy(data + i * n * row_bytes, w->data, n * row_bytes);
    }
    return all;
}

/* Queries, keys and values, of matrices of their own or of one, to MIX, and what rates are made of,
 * beside one another: they read the same. */
static void add_apart(struct builder *b, enum model_buf in)
{
    static const char *const stems[] = {"attn_q", "attn_k", "attn_v"};
    static const enum model_buf bufs[] = {BUF_REC, BUF_REC_GATE, BUF_RATE}; /* as wide, and free */
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_embd = hp->n_embd, n = b->m->buf_width[BUF_REC];
    const bool fused = plan_has(b, "attn_qkv");
    if (fused)
        plan_linear(b, "attn_qkv", in, n_embd, BUF_MIX, 3 * n, ABSENT);
    for (size_t i = 0; !fused && i < 3; i++)
        plan_linear(b, stems[i], in, n_embd, bufs[i], n, ABSENT);
    if (b->arch->recurrence != RECURRENCE_DELTA_BOUNDED)
        plan_linear(b, "ssm_f_a", in, n_embd, BUF_LOW, hp->rec_key, ABSENT);
    plan_linear(b, "ssm_beta", in, n_embd, BUF_BETA, hp->n_rec_head, ABSENT);
    for (uint32_t i = 0; !fused && i < 3; i++) {
        struct op *op = plan_add(b, OP_HEAD_COPY, bufs[i], BUF_MIX);
        op->n_head = 1;
        op->in_step = op->n_in = op->n_out = n;
        op->out_step = (i + 1) * n; /* whose last n */
    }
}

/* Values times a vector of one for each head, or its negative. */
static void add_head_factors(struct builder *b, const struct gguf_tensor *a, bool negative)
{
    const uint32_t n_key = b->m->hp.rec_key, n = b->m->hp.n_rec_head * n_key;
    const uint64_t ne[3] = {n, 1, 1};
    uint8_t *data = NULL;
    struct op *op = plan_add(b, OP_MUL, BUF_RATE, BUF_RATE);
    op->w = a ? plan_make(b, a, GGUF_TYPE_F32, ne, n * sizeof(float), &data) : NULL;
    for (uint32_t i = 0; op->w && i < n; i++) {
        float v;
        memcpy(&v, a->data + i / n_key * sizeof v, sizeof v);
        v = negative ? -v : v;
        memcpy(data + i * sizeof v, &v, sizeof v);
    }
}

/* The least that the logarithm of a rate may be; 0: it may be any. */
static float rate_bound(struct builder *b)
{
    const bool needed = b->arch->recurrence == RECURRENCE_DELTA_BOUNDED;
    bool bounded = true;
    float least = 0.0f;
    if (b->arch->recurrence == RECURRENCE_DELTA_EACH)
        return 0.0f;
    if (!b->err && needed)
        b->err = key_bool(b->m, "kda.safe_gate", &bounded, b->e);
    if (!b->err && !bounded)
        b->err = err_set(
            b->e, ERR_UNSUPPORTED, "%s.kda.safe_gate is false: only true is supported", b->m->arch);
    if (!b->err)
        b->err = key_f32_in(b->m, "kda.gate_lower_bound", -1e3f, 0.0f, &least, b->e);
    if (!b->err && needed && least == 0.0f)
        b->err = err_set(
            b->e, ERR_FORMAT, "metadata key %s.kda.gate_lower_bound is missing", b->m->arch);
    return least;
}

/* With an a for each head, x = ssm_f_b(LOW) + ssm_dt: RATE = e^(a softplus(x)), or bounded,
 * e^(least sigmoid(-a x)), or of x = ssm_f_a(in) + ssm_dt, with the other sign of a; BETA =
 * sigmoid(BETA). By ops on vectors: there are n_key times as many as where OP_RATES computes them
 * in double. */
static void add_rates_of_keys(struct builder *b, enum model_buf in)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_head = hp->n_rec_head, n_key = hp->rec_key, n = n_head * n_key;
    const bool whole = b->arch->recurrence == RECURRENCE_DELTA_BOUNDED;
    const bool flat = b->arch->recurrence == RECURRENCE_DELTA_GATED;
    const float least = rate_bound(b);
    const bool bounded = least < 0.0f;
    struct op *op = whole ? plan_linear(b, "ssm_f_a", in, hp->n_embd, BUF_RATE, n, ABSENT)
                          : plan_linear(b, "ssm_f_b", BUF_LOW, n_key, BUF_RATE, n, ABSENT);
    op->bias = plan_take(b, plan_name(b, "ssm_dt", "bias"), n, 1, F32_ONLY, REQUIRED);
    if (!bounded)
        plan_unary(b, BUF_RATE, n, UNARY_SOFTPLUS);
    const struct gguf_tensor *a = take_bare(b, "ssm_a", flat ? n_head : 1, flat ? 1 : n_head);
    add_head_factors(b, a, bounded && flat);
    if (bounded) {
        plan_unary(b, BUF_RATE, n, UNARY_SIGMOID);
        plan_add(b, OP_SCALE, BUF_RATE, BUF_RATE)->scale = least;
    }
    plan_unary(b, BUF_RATE, n, UNARY_EXP);
    plan_unary(b, BUF_BETA, n_head, UNARY_SIGMOID);
}

/* Kimi Delta Attention. */
static void add_delta_each(struct builder *b, enum model_buf in, enum model_buf out)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_embd = hp->n_embd, n = b->m->buf_width[BUF_REC];
    add_apart(b, in);
    struct op *op = plan_add(b, OP_CONV, BUF_MIX, BUF_MIX);
    op->w = join_convs(b, n);
    op->gated = true;
    add_rates_of_keys(b, in);
    op = plan_add(b, OP_HEAD_UNIT, BUF_MIX, BUF_MIX);
    op->head_dim = hp->rec_key;
    op->n_in = op->n_out = 2 * n;
    add_heads(b, OP_RECUR, RECUR_DELTA_EACH);
    add_rec_norm(b, hp->rec_value, 1, REQUIRED);
    if (b->arch->recurrence == RECURRENCE_DELTA_BOUNDED) {
        plan_linear(b, "ssm_g_a", in, n_embd, BUF_REC_GATE, n, ABSENT);
    } else if (b->arch->recurrence == RECURRENCE_DELTA_GATED) {
        plan_linear(b, "ssm_g", in, n_embd, BUF_REC_GATE, n, ABSENT);
    } else {
        plan_linear(b, "ssm_g_a", in, n_embd, BUF_LOW, hp->rec_key, ABSENT);
        plan_linear(b, "ssm_g_b", BUF_LOW, hp->rec_key, BUF_REC_GATE, n, ABSENT);
    }
    plan_product(b, GATE_SIGMOID, BUF_REC_GATE, BUF_REC, BUF_REC);
    plan_linear(b, "attn_output", BUF_REC, n, out, n_embd, ABSENT);
}

static void add_scan(struct builder *b, enum model_buf in, enum model_buf out)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_head = hp->n_rec_head, n = b->m->buf_width[BUF_REC], group = hp->n_rec_group;
    const enum model_buf bufs[] = {BUF_REC_GATE, BUF_MIX, BUF_RATE};
    plan_stacked(
        b, "ssm_in", in, bufs, (const uint32_t[]){n, hp->conv_channels, n_head}, 3, ABSENT);
    struct op *op = add_heads(b, OP_RATES, RECUR_SCAN);
    op->bias = plan_take(b, plan_name(b, "ssm_dt", "bias"), n_head, 1, F32_ONLY, REQUIRED);
    op->w = take_bare(b, "ssm_a", 1, n_head);
    add_conv(b, "ssm_conv1d", true, OPTIONAL);
    add_heads(b, OP_RECUR, RECUR_SCAN)->w = take_bare(b, "ssm_d", 1, n_head);
    plan_product(b, GATE_SILU, BUF_REC_GATE, BUF_REC, BUF_REC);
    const bool beside = b->arch->recurrent_layers == RECURRENT_BESIDE;
    add_rec_norm(b, n / group, group, beside ? OPTIONAL : REQUIRED);
    plan_linear(b, "ssm_out", BUF_REC, n, out, hp->n_embd, ABSENT);
}

/* Of keys, queries and what steps are made of: with weights, or bare where the file says so. */
static void add_channel_norms(struct builder *b)
{
    const struct model_hparams *hp = &b->m->hp;
    bool bare = false;
    if (b->arch->recurrence != RECURRENCE_MAMBA) {
        plan_part_norm(b, "ssm_dt_norm", BUF_BETA, hp->rec_rank);
        plan_part_norm(b, "ssm_b_norm", BUF_REC_KEY, hp->rec_key);
        plan_part_norm(b, "ssm_c_norm", BUF_REC_QUERY, hp->rec_key);
        return;
    }
    if (!b->err)
        b->err = key_bool(b->m, "ssm.dt_b_c_rms", &bare, b->e);
    if (!bare)
        return;
    plan_head_norm(b, BUF_BETA, hp->rec_rank, NULL)->head_dim = hp->rec_rank;
    plan_head_norm(b, BUF_REC_KEY, hp->rec_key, NULL)->head_dim = hp->rec_key;
    plan_head_norm(b, BUF_REC_QUERY, hp->rec_key, NULL)->head_dim = hp->rec_key;
}

static void add_channels(struct builder *b, enum model_buf in, enum model_buf out)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n = hp->n_rec_head, rank = hp->rec_rank, n_key = hp->rec_key;
    const enum model_buf bufs[] = {BUF_MIX, BUF_REC_GATE};
    const enum model_buf parts[] = {BUF_BETA, BUF_REC_KEY, BUF_REC_QUERY};
    plan_stacked(b, "ssm_in", in, bufs, (const uint32_t[]){n, n}, 2, ABSENT);
    add_conv(b, "ssm_conv1d", true, OPTIONAL);
    plan_stacked(b, "ssm_x", BUF_MIX, parts, (const uint32_t[]){rank, n_key, n_key}, 3, ABSENT);
    add_channel_norms(b);
    plan_linear(b, "ssm_dt", BUF_BETA, rank, BUF_RATE, n, REQUIRED);
    plan_unary(b, BUF_RATE, n, UNARY_SOFTPLUS);
    struct op *op = add_heads(b, OP_RECUR, RECUR_SELECTIVE);
    op->w = take_bare(b, "ssm_a", n_key, n);
    op->bias = take_bare(b, "ssm_d", n, 1);
    plan_product(b, GATE_SILU, BUF_REC_GATE, BUF_REC, BUF_REC);
    plan_linear(b, "ssm_out", BUF_REC, n, out, hp->n_embd, ABSENT);
}

/* x and gate, which lie head by head in one matrix. */
static void add_by_head(struct builder *b, enum model_buf in)
{
    const struct model_hparams *hp = &b->m->hp;
    plan_linear(b, "ssm_in", in, hp->n_embd, BUF_QUERY, 2 * hp->conv_channels, ABSENT);
    for (int i = 0; i < 2; i++) {
        struct op *op = plan_add(b, OP_HEAD_COPY, BUF_QUERY, i == 0 ? BUF_REC_GATE : BUF_MIX);
        op->n_head = hp->n_rec_head;
        op->in_step = 2 * hp->rec_value;
        op->out_step = op->n_in = op->n_out = hp->rec_value;
        op->front = i == 0;
    }
}

/* Keys and queries are made of what was convolved, and join it in MIX. */
static void add_scan_normed(struct builder *b, enum model_buf in, enum model_buf out)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n = hp->conv_channels, n_head = hp->n_rec_head, n_key = hp->rec_key;
    const enum model_buf parts[] = {BUF_REC_KEY, BUF_REC_QUERY, BUF_BETA};
    const uint32_t widths[] = {n_key, n_key, hp->rec_rank};
    add_by_head(b, in);
    add_conv(b, "ssm_conv1d", true, ABSENT);
    plan_stacked_of(b, "ssm_x", BUF_MIX, n, parts, widths, 3, ABSENT);
    add_channel_norms(b);
    plan_linear(b, "ssm_dt", BUF_BETA, hp->rec_rank, BUF_RATE, n_head, ABSENT);
    struct op *op = add_heads(b, OP_RATES, RECUR_SCAN);
    op->bias = plan_take(b, plan_name(b, "ssm_dt", "bias"), n_head, 1, F32_ONLY, REQUIRED);
    op->w = take_bare(b, "ssm_a", n_head, 1);
    for (uint32_t i = 0; i < 2; i++) {
        op = plan_add(b, OP_HEAD_COPY, parts[i], BUF_MIX);
        op->n_head = 1;
        op->in_step = op->n_in = op->n_out = n_key;
        op->out_step = n + (i + 1) * n_key; /* whose last n_key */
    }
    add_heads(b, OP_RECUR, RECUR_SCAN)->w = take_bare(b, "ssm_d", n_head, 1);
    plan_product(b, GATE_SILU, BUF_REC_GATE, BUF_REC, BUF_REC);
    plan_linear(b, "ssm_out", BUF_REC, n, out, hp->n_embd, ABSENT);
}

/* What the layer's heads forget by, and that they take all in. Slopes are those of ALiBi, and less
 * steep the later the layer. */
static const struct gguf_tensor *make_rates(struct builder *b, const struct gguf_tensor *of)
{
    const uint32_t n = b->m->hp.n_rec_head, n_layer = b->m->hp.n_layer;
    const double last = n_layer > 1 ? n_layer - 1 : 1, scale = 1 - b->layer / last + 1e-5;
    const uint64_t ne[3] = {n, 2, 1};
    uint8_t *data = NULL;
    const struct gguf_tensor *w =
        of ? plan_make(b, of, GGUF_TYPE_F32, ne, n * sizeof(float), &data) : NULL;
    for (uint32_t h = 0; w && h < n; h++) {
        const float both[] = {(float)exp(-scale * exp2(-8.0 * (h + 1) / n)), 1.0f};
        memcpy(data + h * sizeof(float), &both[0], sizeof(float));
        memcpy(data + (n + h) * sizeof(float), &both[1], sizeof(float));
    }
    return w;
}

static void add_fixed(struct builder *b, enum model_buf in, enum model_buf out)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_embd = hp->n_embd, n = b->m->buf_width[BUF_REC];
    const struct gguf_tensor *w =
        plan_linear(b, "attn_qkv", in, n_embd, BUF_MIX, hp->conv_channels, ABSENT)->w;
    plan_linear(b, "attn_gate", in, n_embd, BUF_REC_GATE, n, ABSENT);
    plan_product(b, GATE_SIGMOID, BUF_MIX, BUF_MIX, BUF_MIX); /* silu */
    add_heads(b, OP_RECUR, RECUR_FIXED)->w = make_rates(b, w);
    plan_part_norm(b, "attn_norm_2", BUF_REC, n);
    plan_product(b, GATE_SIGMOID, BUF_REC_GATE, BUF_REC, BUF_REC);
    plan_linear(b, "attn_output", BUF_REC, n, out, n_embd, ABSENT);
}

void plan_recurrent(struct builder *b, enum model_buf in, enum model_buf out)
{
    switch (b->arch->recurrence) {
    case RECURRENCE_CONV:
        add_short_convolution(b, in, out);
        break;
    case RECURRENCE_DELTA:
    case RECURRENCE_DELTA_MIXED:
        add_delta(b, in, out);
        break;
    case RECURRENCE_DELTA_EACH:
    case RECURRENCE_DELTA_BOUNDED:
    case RECURRENCE_DELTA_GATED:
        add_delta_each(b, in, out);
        break;
    case RECURRENCE_RWKV6:
    case RECURRENCE_RWKV7:
        plan_rwkv(b, in, out);
        break;
    case RECURRENCE_MAMBA2:
        add_scan(b, in, out);
        break;
    case RECURRENCE_MAMBA2_NORMED:
        add_scan_normed(b, in, out);
        break;
    case RECURRENCE_MAMBA:
    case RECURRENCE_MAMBA_NORMED:
        add_channels(b, in, out);
        break;
    case RECURRENCE_FIXED:
        add_fixed(b, in, out);
        break;
    case RECURRENCE_NONE:
        break;
    }
}
