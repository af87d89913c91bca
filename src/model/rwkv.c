/* RWKV-7 (Peng et al. 2025): layers of two parts, both of which read the row before, too.
 *
 *      sx = row before - h;  x_i = h + sx lerp_i, of i in r, w, k, v, a, g
 *      q = receptance(x_r);  k = key(x_k);  v = value(x_v), towards that of the first layer
 *      f = e^(-e^(-1/2) sigmoid(w0 + w2 tanh(w1 x_w)));  a = sigmoid(a0 + a2 a1 x_a)
 *      u = unit(k k_k);  k += (a - 1) k k_a;  REC = heads by (q, k, v, f, u, b = u a)
 *      output((norm by head(REC) + v (q k . r_k)) g2 sigmoid(g1 x_g))
 *
 *      sx = row before - h;  value(relu(key(h + sx lerp_k))^2) */
#include "model/build.h"
#include "model/keys.h"

#include <string.h>

#define MAX_HEADS 1024
#define MAX_HEAD 1024
#define MAX_RANK (1u << 14)
#define DECAY (-0.606531f) /* -e^(-1/2), in as many digits as models were trained with */
#define HEAD_EPS 64e-5f    /* of the norm of what heads read, whatever the file says */
#define UNIT_EPS 1e-24f

enum { LERP_R, LERP_W, LERP_K, LERP_V, LERP_A, LERP_G, N_LERPS };

static const char *const rank_keys[] = {"attention.decay_lora_rank",
                                        "attention.iclr_lora_rank",
                                        "attention.value_residual_mix_lora_rank",
                                        "attention.gate_lora_rank"};
enum { RANK_DECAY, RANK_RATE, RANK_VALUE, RANK_GATE, N_RANKS };

enum err rwkv_read(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    uint32_t n_shifts = 2;
    enum err err = key_u32_in(m, "wkv.head_size", 1, MAX_HEAD, &hp->rec_key, e);
    if (!err)
        err = key_u32(m, "token_shift_count", &n_shifts, e);
    if (err)
        return err;
    if (n_shifts != 2)
        return err_set(
            e, ERR_UNSUPPORTED, "%s.token_shift_count is %u; 2 is supported", m->arch, n_shifts);
    if (hp->n_embd % hp->rec_key != 0 || hp->n_embd / hp->rec_key > MAX_HEADS)
        return err_set(e,
                       ERR_FORMAT,
                       "%s.wkv.head_size is %u, of which embedding_length, %u, is no multiple, or "
                       "more than %u",
                       m->arch,
                       hp->rec_key,
                       hp->n_embd,
                       MAX_HEADS);
    hp->rec_value = hp->rec_key;
    hp->n_rec_head = hp->n_rec_group = hp->rec_rank = hp->n_embd / hp->rec_key;
    hp->conv_width = 2;
    hp->conv_channels = 2 * hp->n_embd;
    for (int i = 0; i < N_RANKS; i++) {
        uint32_t n = 0;
        if ((err = key_u32_in(m, rank_keys[i], 1, MAX_RANK, &n, e)))
            return err;
        hp->rec_rank = n > hp->rec_rank ? n : hp->rec_rank;
    }
    return OK;
}

void rwkv_widths(struct model *m)
{
    static const enum model_buf bufs[] = {BUF_Q,
                                          BUF_K,
                                          BUF_V,
                                          BUF_ATT,
                                          BUF_RATE,
                                          BUF_BETA,
                                          BUF_REC,
                                          BUF_REC_GATE,
                                          BUF_REC_KEY,
                                          BUF_BESIDE};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        m->buf_width[bufs[i]] = m->hp.n_embd;
    m->buf_width[BUF_MIX] = m->hp.conv_channels;
    m->buf_width[BUF_LOW] = m->hp.rec_rank;
}

/* Of a narrow product; checked before. */
static uint32_t rank_of(const struct builder *b, int rank)
{
    struct err_info ignored;
    uint32_t n = 1;
    return key_u32(b->m, rank_keys[rank], &n, &ignored) ? 1 : n;
}

static const struct gguf_tensor *take_row(struct builder *b, const char *stem)
{
    return plan_take(b, plan_name(b, stem, "weight"), b->m->hp.n_embd, 1, F32_ONLY, REQUIRED);
}

static void add_mul(struct builder *b,
                    enum model_buf in,
                    const struct gguf_tensor *w,
                    enum model_buf out)
{
    struct op *op = plan_add(b, OP_MUL, in, out);
    op->n_in = op->n_out = b->m->hp.n_embd;
    op->w = w;
}

static void add_product(struct builder *b,
                        enum gate_kind kind,
                        enum model_buf gate,
                        enum model_buf in,
                        enum model_buf out)
{
    struct op *op = plan_add(b, OP_GATED, gate, out);
    op->in2 = in;
    op->gate = kind;
}

static struct op *add_copy(struct builder *b, enum model_buf in, enum model_buf out)
{
    struct op *op = plan_add(b, OP_HEAD_COPY, in, out);
    op->n_head = 1;
    op->n_in = op->n_out = op->in_step = op->out_step = b->m->hp.n_embd;
    return op;
}

/* The weights of a convolution that is the row before less the row. */
static const struct gguf_tensor *take_less(struct builder *b)
{
    const float row[2] = {1.0f, -1.0f};
    const uint32_t n = b->m->hp.n_embd;
    const uint64_t ne[3] = {2, n, 1};
    uint8_t *data = NULL;
    if (b->less)
        return b->less;
    b->less = plan_make(b, gguf_tensor_at(b->m->gguf, 0), GGUF_TYPE_F32, ne, sizeof row, &data);
    for (uint32_t i = 0; b->less && i < n; i++)
        memcpy(data + i * sizeof row, row, sizeof row);
    return b->less;
}

/* The row before less the row, in one half of MIX. */
static void add_shift(struct builder *b, enum model_buf in, uint32_t half)
{
    const uint32_t n = b->m->hp.n_embd;
    add_copy(b, in, BUF_MIX)->out_step = (half + 1) * n; /* whose last n */
    struct op *op = plan_add(b, OP_CONV, BUF_MIX, BUF_MIX);
    op->n_in = op->n_out = n;
    op->first_channel = half * n;
    op->w = take_less(b);
}

/* Values first .. first + n - 1 of a tensor of floats, as a tensor of ne[2] matrices of ne[1] rows.
 */
static const struct gguf_tensor *floats_of(struct builder *b,
                                           const struct gguf_tensor *t,
                                           uint64_t first,
                                           const uint64_t ne[3])
{
    if (!t)
        return NULL;
    struct gguf_tensor *p = plan_part(b, t);
    memcpy(p->ne, ne, 3 * sizeof *ne);
    p->ne[3] = 1;
    p->n_bytes = ne[0] * ne[1] * ne[2] * sizeof(float);
    p->data = t->data + first * sizeof(float);
    return p;
}

/* Six rows, each a tensor of its own. */
static void take_lerps(struct builder *b, const struct gguf_tensor *lerps[N_LERPS])
{
    const uint64_t n = b->m->hp.n_embd, ne[3] = {n, 1, 1};
    const uint64_t shape[4] = {n, 1, 1, N_LERPS};
    const struct gguf_tensor *all = plan_take_shape(
        b, plan_name(b, "time_mix_lerp_fused", "weight"), shape, F32_ONLY, REQUIRED);
    for (uint64_t i = 0; i < N_LERPS; i++)
        lerps[i] = floats_of(b, all, i * n, ne);
}

/* A linear of the row with its share of the one before. */
static void add_lerp(struct builder *b, enum model_buf in, const struct gguf_tensor *lerp)
{
    add_mul(b, BUF_MIX, lerp, BUF_ATT);
    plan_add(b, OP_ADD, in, BUF_ATT);
}

/* Two narrow matrices of ATT, with an `inner` between them and a sum behind them. */
static void add_narrow(struct builder *b,
                       const char *const stems[3], /* the last: of the sum, or NULL */
                       uint32_t rank,
                       enum unary_kind inner,
                       enum model_buf out)
{
    const uint32_t n = b->m->hp.n_embd;
    plan_linear(b, stems[0], BUF_ATT, n, BUF_LOW, rank, ABSENT);
    if (inner != UNARY_NONE)
        plan_unary(b, BUF_LOW, rank, inner);
    struct op *op = plan_linear(b, stems[1], BUF_LOW, rank, out, n, ABSENT);
    op->bias = stems[2] ? take_row(b, stems[2]) : NULL;
}

static void add_rates(struct builder *b)
{
    const uint32_t n = b->m->hp.n_embd, rank = rank_of(b, RANK_DECAY);
    plan_linear(b, "time_mix_w1", BUF_ATT, n, BUF_LOW, rank, ABSENT);
    struct op *op = plan_add(b, OP_TANH, BUF_LOW, BUF_LOW);
    op->n_in = op->n_out = rank;
    plan_linear(b, "time_mix_w2", BUF_LOW, rank, BUF_RATE, n, ABSENT)->bias =
        take_row(b, "time_mix_w0");
    plan_unary(b, BUF_RATE, n, UNARY_SIGMOID);
    plan_add(b, OP_SCALE, BUF_RATE, BUF_RATE)->scale = DECAY;
    plan_unary(b, BUF_RATE, n, UNARY_EXP);
}

/* V, part of the way towards that of the first layer, which has tensors for that and no use. */
static void add_values(struct builder *b)
{
    static const char *const stems[] = {"time_mix_v1", "time_mix_v2", "time_mix_v0"};
    const uint32_t n = b->m->hp.n_embd, rank = rank_of(b, RANK_RATE); /* as files have it there */
    plan_linear(b, "time_mix_value", BUF_ATT, n, BUF_V, n, ABSENT);
    if (b->layer == 0) {
        add_copy(b, BUF_V, BUF_BESIDE);
        plan_take(b, plan_name(b, stems[0], "weight"), n, rank, ANY_TYPE, OPTIONAL);
        plan_take(b, plan_name(b, stems[1], "weight"), rank, n, ANY_TYPE, OPTIONAL);
        plan_take(b, plan_name(b, stems[2], "weight"), n, 1, F32_ONLY, OPTIONAL);
        return;
    }
    add_narrow(b, stems, rank_of(b, RANK_VALUE), UNARY_NONE, BUF_REC);
    add_copy(b, BUF_BESIDE, BUF_BETA);
    plan_add(b, OP_ADD, BUF_V, BUF_BETA)->scale = -1.0f;
    add_product(b, GATE_SIGMOID, BUF_REC, BUF_BETA, BUF_BETA);
    plan_add(b, OP_ADD, BUF_BETA, BUF_V);
}

/* Of keys and BETA, how much each is taken in: REC_KEY, K and BETA as heads read them. */
static void add_keys(struct builder *b)
{
    add_mul(b, BUF_K, take_row(b, "time_mix_k_k"), BUF_REC_KEY);
    struct op *op = plan_add(b, OP_HEAD_UNIT, BUF_REC_KEY, BUF_REC_KEY);
    op->head_dim = b->m->hp.rec_key;
    op->eps = UNIT_EPS;
    add_mul(b, BUF_K, take_row(b, "time_mix_k_a"), BUF_ATT);
    add_product(b, GATE_PLAIN, BUF_BETA, BUF_ATT, BUF_REC);
    plan_add(b, OP_ADD, BUF_ATT, BUF_REC)->scale = -1.0f;
    plan_add(b, OP_ADD, BUF_REC, BUF_K);
    add_product(b, GATE_PLAIN, BUF_BETA, BUF_REC_KEY, BUF_BETA);
}

/* REC, normalised by head, and V times the head's q k . r_k. */
static void add_reading(struct builder *b)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n = hp->n_embd, dim = hp->rec_key, n_head = hp->n_rec_head;
    const uint64_t ne[3] = {dim, 1, n_head};
    struct op *op = plan_add(b, OP_RECUR, BUF_Q, BUF_REC);
    op->recur = RECUR_DELTA_APART;
    op->n_head = n_head;
    op = plan_add(b, OP_HEAD_LAYER_NORM, BUF_REC, BUF_REC);
    op->head_dim = dim;
    op->eps = HEAD_EPS;
    op->w = take_row(b, "time_mix_ln");
    op->bias = plan_take(b, plan_name(b, "time_mix_ln", "bias"), n, 1, F32_ONLY, REQUIRED);
    add_product(b, GATE_PLAIN, BUF_K, BUF_Q, BUF_ATT);
    op = plan_add(b, OP_HEAD_LINEAR, BUF_ATT, BUF_LOW);
    op->w = floats_of(b, take_row(b, "time_mix_r_k"), 0, ne);
    op->n_head = n_head;
    op->n_in = op->in_step = dim;
    op->n_out = op->out_step = 1;
    op = plan_add(b, OP_HEAD_SCALE, BUF_LOW, BUF_V);
    op->n_head = n_head;
    op->head_dim = dim;
    plan_add(b, OP_ADD, BUF_V, BUF_REC);
}

void plan_rwkv(struct builder *b, enum model_buf in, enum model_buf out)
{
    static const char *const rate[] = {"time_mix_a1", "time_mix_a2", "time_mix_a0"};
    static const char *const gate[] = {"time_mix_g1", "time_mix_g2", NULL};
    const uint32_t n = b->m->hp.n_embd;
    const struct gguf_tensor *lerps[N_LERPS];
    take_lerps(b, lerps);
    add_shift(b, in, 0);
    add_lerp(b, in, lerps[LERP_R]);
    plan_linear(b, "time_mix_receptance", BUF_ATT, n, BUF_Q, n, ABSENT);
    add_lerp(b, in, lerps[LERP_W]);
    add_rates(b);
    add_lerp(b, in, lerps[LERP_K]);
    plan_linear(b, "time_mix_key", BUF_ATT, n, BUF_K, n, ABSENT);
    add_lerp(b, in, lerps[LERP_V]);
    add_values(b);
    add_lerp(b, in, lerps[LERP_G]);
    add_narrow(b, gate, rank_of(b, RANK_GATE), UNARY_SIGMOID, BUF_REC_GATE);
    add_lerp(b, in, lerps[LERP_A]);
    add_narrow(b, rate, rank_of(b, RANK_RATE), UNARY_NONE, BUF_BETA);
    plan_unary(b, BUF_BETA, n, UNARY_SIGMOID);
    add_keys(b);
    add_reading(b);
    add_product(b, GATE_PLAIN, BUF_REC_GATE, BUF_REC, BUF_REC);
    plan_linear(b, "time_mix_output", BUF_REC, n, out, n, ABSENT);
}

void plan_rwkv_channels(struct builder *b, enum model_buf in, enum model_buf out)
{
    const uint32_t n = b->m->hp.n_embd, n_ff = b->m->layers[b->layer].n_ff;
    add_shift(b, in, 1);
    add_copy(b, BUF_MIX, BUF_ATT)->in_step = 2 * n; /* whose last n */
    add_mul(b, BUF_ATT, take_row(b, "channel_mix_lerp_k"), BUF_ATT);
    plan_add(b, OP_ADD, in, BUF_ATT);
    plan_linear(b, "channel_mix_key", BUF_ATT, n, BUF_GATE, n_ff, ABSENT);
    plan_unary(b, BUF_GATE, n_ff, UNARY_RELU_SQUARE);
    plan_linear(b, "channel_mix_value", BUF_GATE, n_ff, out, n, ABSENT);
}
