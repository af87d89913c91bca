/* RWKV: layers of two parts, both of which read the row before, too. In RWKV-7 (Peng et al. 2025)
 *
 *      sx = row before - h;  x_i = h + sx lerp_i, of i in r, w, k, v, a, g
 *      q = receptance(x_r);  k = key(x_k);  v = value(x_v), towards that of the first layer
 *      f = e^(-e^(-1/2) sigmoid(w0 + w2 tanh(w1 x_w)));  a = sigmoid(a0 + a2 a1 x_a)
 *      u = unit(k k_k);  k += (a - 1) k k_a;  REC = heads by (q, k, v, f, u, b = u a)
 *      output((norm by head(REC) + v (q k . r_k)) g2 sigmoid(g1 x_g))
 *
 *      sx = row before - h;  value(relu(key(h + sx lerp_k))^2)
 *
 * and in RWKV-6 (Peng et al. 2024), where how much of the row before is read depends on both:
 *
 *      d_i = w2_i tanh(w1_i (h + sx lerp_x)), of i in w, k, v, r, g;  x_i = h + sx (lerp_i + d_i)
 *      q, k, v = receptance(x_r), key(x_k), value(x_v)
 *      f = e^(-e^(decay + decay_w2 tanh(decay_w1 x_w)))
 *      REC = heads by (q, k, v, f) + v (q k . first)
 *      output(norm by head(REC) silu(gate(x_g)))
 *
 *      sigmoid(receptance(h + sx lerp_r)) value(relu(key(h + sx lerp_k))^2)
 *
 * whose X is halved now and then. In models made of Qwen2's the first part alone is RWKV's: that of
 * RWKV-7 (ARWKV), where gate and norm by head may be absent, or that of RWKV-6 (QRWKV6) with
 *
 *      k -= k f;  REC = heads by (q, k, v, f), after the row;  output(REC sigmoid(gate(x_g))) */
#include "model/build.h"
#include "model/keys.h"

#include <math.h>
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

enum { N_SHARES = 5 }; /* RWKV-6's */

bool rwkv_is(const struct arch *arch)
{
    return arch->recurrence == RECURRENCE_RWKV6 || arch->recurrence == RECURRENCE_RWKV7;
}

/* The rank of one narrow product, of which there may be several side by side. */
static enum err read_rank(
    struct model *m, const char *key, uint32_t least, uint32_t n_beside, struct err_info *e)
{
    uint32_t n = 0;
    enum err err = key_u32_in(m, key, least, MAX_RANK, &n, e);
    if (!err && n * n_beside > m->hp.rec_rank)
        m->hp.rec_rank = n * n_beside;
    return err;
}

/* Heads that have keys and values of their own; the file may say 0 of all of them. */
static uint32_t n_own(const struct model *m)
{
    struct err_info ignored;
    uint32_t n = 0;
    return key_u32(m, "attention.head_count_kv", &n, &ignored) || n == 0 ? m->hp.n_rec_head : n;
}

static enum err read_own(const struct model *m, struct err_info *e)
{
    const uint32_t n_head = m->hp.n_rec_head;
    uint32_t n = n_head;
    enum err err = key_u32_in(m, "attention.head_count_kv", 0, n_head, &n, e);
    if (!err && n != 0 && n_head % n != 0)
        err = err_set(e,
                      ERR_FORMAT,
                      "%s.attention.head_count_kv is %u, which does not divide %u heads",
                      m->arch,
                      n,
                      n_head);
    return err;
}

static enum err read_ranks(struct model *m, const struct arch *arch, struct err_info *e)
{
    enum err err = OK;
    if (arch->recurrence == RECURRENCE_RWKV6) {
        err = read_rank(m, "time_mix_extra_dim", 1, N_SHARES, e);
        return err ? err : read_rank(m, "time_decay_extra_dim", 1, 1, e);
    }
    for (int i = 0; i < N_RANKS && !err; i++)
        err = read_rank(m, rank_keys[i], i == RANK_GATE && arch->usual_ff ? 0 : 1, 1, e);
    return err;
}

enum err rwkv_read(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    const uint32_t n_parts = arch->usual_ff ? 1 : 2; /* that read the row before */
    uint32_t n_shifts = n_parts;
    enum err err = key_u32_in(m, "wkv.head_size", 1, MAX_HEAD, &hp->rec_key, e);
    if (!err)
        err = key_u32(m, "token_shift_count", &n_shifts, e);
    if (err)
        return err;
    if (n_shifts != n_parts)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "%s.token_shift_count is %u; %u is supported",
                       m->arch,
                       n_shifts,
                       n_parts);
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
    hp->conv_channels = n_parts * hp->n_embd;
    if (arch->recurrence == RECURRENCE_RWKV6 && arch->usual_ff && (err = read_own(m, e)))
        return err;
    return read_ranks(m, arch, e);
}

void rwkv_widths(struct model *m, const struct arch *arch)
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
    if (arch->recurrence == RECURRENCE_RWKV6)
        m->buf_width[BUF_QUERY] = N_SHARES * m->hp.n_embd;
}

/* Of a narrow product; checked before. */
static uint32_t rank_at(const struct builder *b, const char *key)
{
    struct err_info ignored;
    uint32_t n = 1;
    return key_u32(b->m, key, &n, &ignored) ? 1 : n;
}

static uint32_t rank_of(const struct builder *b, int rank)
{
    return rank_at(b, rank_keys[rank]);
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
    plan_copy(b, in, 0, BUF_MIX, half);
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

/* Six rows, or five where nothing is gated, each a tensor of its own. */
static void take_lerps(struct builder *b, bool gated, const struct gguf_tensor *lerps[N_LERPS])
{
    const uint64_t n = b->m->hp.n_embd, ne[3] = {n, 1, 1}, n_lerps = gated ? N_LERPS : LERP_G;
    const uint64_t shape[4] = {n, 1, 1, n_lerps};
    const struct gguf_tensor *all = plan_take_shape(
        b, plan_name(b, "time_mix_lerp_fused", "weight"), shape, F32_ONLY, REQUIRED);
    for (uint64_t i = 0; i < n_lerps; i++)
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
        plan_copy(b, BUF_V, 0, BUF_BESIDE, 0);
        plan_take(b, plan_name(b, stems[0], "weight"), n, rank, ANY_TYPE, OPTIONAL);
        plan_take(b, plan_name(b, stems[1], "weight"), rank, n, ANY_TYPE, OPTIONAL);
        plan_take(b, plan_name(b, stems[2], "weight"), n, 1, F32_ONLY, OPTIONAL);
        return;
    }
    add_narrow(b, stems, rank_of(b, RANK_VALUE), UNARY_NONE, BUF_REC);
    plan_copy(b, BUF_BESIDE, 0, BUF_BETA, 0);
    plan_add(b, OP_ADD, BUF_V, BUF_BETA)->scale = -1.0f;
    plan_product(b, GATE_SIGMOID, BUF_REC, BUF_BETA, BUF_BETA);
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
    plan_product(b, GATE_PLAIN, BUF_BETA, BUF_ATT, BUF_REC);
    plan_add(b, OP_ADD, BUF_ATT, BUF_REC)->scale = -1.0f;
    plan_add(b, OP_ADD, BUF_REC, BUF_K);
    plan_product(b, GATE_PLAIN, BUF_BETA, BUF_REC_KEY, BUF_BETA);
}

static void add_heads(struct builder *b, enum recur_kind recur)
{
    struct op *op = plan_add(b, OP_RECUR, BUF_Q, BUF_REC);
    op->recur = recur;
    op->n_head = b->m->hp.n_rec_head;
}

/* Of REC, by head. */
static void add_rec_norm(struct builder *b)
{
    const uint32_t n = b->m->hp.n_embd;
    struct op *op = plan_add(b, OP_HEAD_LAYER_NORM, BUF_REC, BUF_REC);
    op->head_dim = b->m->hp.rec_key;
    op->eps = HEAD_EPS;
    op->w = take_row(b, "time_mix_ln");
    op->bias = plan_take(b, plan_name(b, "time_mix_ln", "bias"), n, 1, F32_ONLY, REQUIRED);
}

/* LOW = each head's q k . w. */
static void add_match(struct builder *b, const struct gguf_tensor *w)
{
    const uint32_t dim = b->m->hp.rec_key, n_head = b->m->hp.n_rec_head;
    const uint64_t ne[3] = {dim, 1, n_head};
    plan_product(b, GATE_PLAIN, BUF_K, BUF_Q, BUF_ATT);
    struct op *op = plan_add(b, OP_HEAD_LINEAR, BUF_ATT, BUF_LOW);
    op->w = floats_of(b, w, 0, ne);
    op->n_head = n_head;
    op->n_in = op->in_step = dim;
    op->n_out = op->out_step = 1;
}

/* REC += V times the head's LOW; V is no more what it was. */
static void add_matched(struct builder *b)
{
    struct op *op = plan_add(b, OP_HEAD_SCALE, BUF_LOW, BUF_V);
    op->n_head = b->m->hp.n_rec_head;
    op->head_dim = b->m->hp.rec_key;
    plan_add(b, OP_ADD, BUF_V, BUF_REC);
}

static void add_bonus(struct builder *b, const struct gguf_tensor *w)
{
    add_match(b, w);
    add_matched(b);
}

/* --- RWKV-6 ---------------------------------------------------------------------------------- */

/* How much of the row before each of five linears reads: QUERY. */
static void add_shares(struct builder *b, enum model_buf in)
{
    const uint32_t n = b->m->hp.n_embd, rank = rank_at(b, "time_mix_extra_dim");
    add_lerp(b, in, take_row(b, "time_mix_lerp_x"));
    plan_linear(b, "time_mix_w1", BUF_ATT, n, BUF_LOW, N_SHARES * rank, ABSENT);
    struct op *op = plan_add(b, OP_TANH, BUF_LOW, BUF_LOW);
    op->n_in = op->n_out = N_SHARES * rank;
    op = plan_add(b, OP_HEAD_LINEAR, BUF_LOW, BUF_QUERY);
    op->w =
        plan_take3(b, plan_name(b, "time_mix_w2", "weight"), rank, n, N_SHARES, ANY_TYPE, REQUIRED);
    op->n_head = N_SHARES;
    op->n_in = op->in_step = rank;
    op->n_out = op->out_step = n;
}

/* Five rows, of one tensor or each of its own. */
static void take_share_lerps(struct builder *b, const struct gguf_tensor *lerps[N_SHARES])
{
    static const char *const stems[] = {"time_mix_lerp_w",
                                        "time_mix_lerp_k",
                                        "time_mix_lerp_v",
                                        "time_mix_lerp_r",
                                        "time_mix_lerp_g"};
    const uint64_t n = b->m->hp.n_embd, ne[3] = {n, 1, 1}, shape[4] = {n, 1, 1, N_SHARES};
    const bool apart = plan_has(b, stems[0]);
    const struct gguf_tensor *all =
        apart ? NULL
              : plan_take_shape(
                    b, plan_name(b, "time_mix_lerp_fused", "weight"), shape, F32_ONLY, REQUIRED);
    for (uint64_t i = 0; i < N_SHARES; i++)
        lerps[i] = apart ? take_row(b, stems[i]) : floats_of(b, all, i * n, ne);
}

/* ATT = the row, with so much of the one before as lerp and share i say. */
static void add_shared(struct builder *b,
                       enum model_buf in,
                       uint32_t i,
                       const struct gguf_tensor *lerp)
{
    plan_copy(b, BUF_QUERY, i, BUF_ATT, 0);
    plan_product(b, GATE_PLAIN, BUF_ATT, BUF_MIX, BUF_ATT);
    add_mul(b, BUF_MIX, lerp, BUF_REC);
    plan_add(b, OP_ADD, BUF_REC, BUF_ATT);
    plan_add(b, OP_ADD, in, BUF_ATT);
}

static void add_decays(struct builder *b)
{
    const uint32_t n = b->m->hp.n_embd, rank = rank_at(b, "time_decay_extra_dim");
    plan_linear(b, "time_mix_decay_w1", BUF_ATT, n, BUF_LOW, rank, ABSENT);
    struct op *op = plan_add(b, OP_TANH, BUF_LOW, BUF_LOW);
    op->n_in = op->n_out = rank;
    plan_linear(b, "time_mix_decay_w2", BUF_LOW, rank, BUF_RATE, n, ABSENT)->bias =
        take_row(b, "time_mix_decay");
    plan_unary(b, BUF_RATE, n, UNARY_EXP);
    plan_add(b, OP_SCALE, BUF_RATE, BUF_RATE)->scale = -1.0f;
    plan_unary(b, BUF_RATE, n, UNARY_EXP);
}

/* What repeats each of n heads as often as heads share it: matrices of ones and zeros. */
static const struct gguf_tensor *take_repeats(struct builder *b, uint32_t n)
{
    const uint32_t dim = b->m->hp.rec_key, n_rows = b->m->hp.n_embd / n;
    const uint64_t ne[3] = {dim, n_rows, n};
    const size_t row = dim * sizeof(float);
    const float one = 1.0f;
    uint8_t *data = NULL;
    if (b->repeats)
        return b->repeats;
    b->repeats = plan_make(b, gguf_tensor_at(b->m->gguf, 0), GGUF_TYPE_F32, ne, row, &data);
    for (size_t i = 0; b->repeats && i < b->m->hp.n_embd; i++) {
        memset(data + i * row, 0, row);
        memcpy(data + i * row + i % dim * sizeof one, &one, sizeof one);
    }
    return b->repeats;
}

/* Keys or values of ATT, of which n heads may serve all; REC is overwritten. */
static void add_own(struct builder *b, const char *stem, enum model_buf out, enum presence bias)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n = b->arch->usual_ff ? n_own(b->m) : hp->n_rec_head, dim = hp->rec_key;
    const bool apart = n == hp->n_rec_head;
    plan_linear(b, stem, BUF_ATT, hp->n_embd, apart ? out : BUF_REC, n * dim, bias);
    if (apart)
        return;
    const struct gguf_tensor *repeats = take_repeats(b, n);
    struct op *op = plan_add(b, OP_HEAD_LINEAR, BUF_REC, out);
    op->w = repeats;
    op->n_head = n;
    op->n_in = op->in_step = dim;
    op->n_out = op->out_step = hp->n_embd / n;
}

/* Gated linear attention (Yang et al. 2023): keys count as much as is forgotten along them, and
 * S = f S + k v; REC = S^T q / sqrt(rec_key). Of the state before the row that is S^T (f q) + v (q
 * . k).
 */
static void add_gated_heads(struct builder *b)
{
    plan_product(b, GATE_PLAIN, BUF_RATE, BUF_K, BUF_ATT);
    plan_add(b, OP_ADD, BUF_ATT, BUF_K)->scale = -1.0f;
    plan_add(b, OP_SCALE, BUF_Q, BUF_Q)->scale = 1.0f / sqrtf((float)b->m->hp.rec_key);
    add_match(b, plan_ones(b));
    plan_product(b, GATE_PLAIN, BUF_RATE, BUF_Q, BUF_Q);
    add_heads(b, RECUR_READ_FIRST);
    add_matched(b);
}

static void add_sixth(struct builder *b, enum model_buf in, enum model_buf out)
{
    static const struct {
        const char *stem;
        enum model_buf buf;
    } linears[] = {{"time_mix_key", BUF_K},
                   {"time_mix_value", BUF_V},
                   {"time_mix_receptance", BUF_Q},
                   {"time_mix_gate", BUF_REC_GATE}};
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n = hp->n_embd;
    const bool usual = b->arch->usual_ff;
    const struct gguf_tensor *lerps[N_SHARES];
    take_share_lerps(b, lerps);
    add_shift(b, in, 0);
    add_shares(b, in);
    add_shared(b, in, 0, lerps[0]);
    add_decays(b);
    for (uint32_t i = 1; i < N_SHARES; i++) {
        const enum model_buf buf = linears[i - 1].buf;
        const enum presence bias = usual && buf != BUF_REC_GATE ? OPTIONAL : ABSENT;
        add_shared(b, in, i, lerps[i]);
        if (buf == BUF_K || buf == BUF_V)
            add_own(b, linears[i - 1].stem, buf, bias);
        else
            plan_linear(b, linears[i - 1].stem, BUF_ATT, n, buf, n, bias);
    }
    if (usual) {
        add_gated_heads(b);
        plan_product(b, GATE_SIGMOID, BUF_REC_GATE, BUF_REC, BUF_REC);
        plan_linear(b, "time_mix_output", BUF_REC, n, out, n, ABSENT);
        return;
    }
    add_heads(b, RECUR_READ_FIRST);
    add_bonus(b,
              plan_take(b,
                        plan_name(b, "time_mix_first", "weight"),
                        hp->rec_key,
                        hp->n_rec_head,
                        F32_ONLY,
                        REQUIRED));
    add_rec_norm(b);
    plan_product(b, GATE_SILU, BUF_REC_GATE, BUF_REC, BUF_REC);
    plan_linear(b, "time_mix_output", BUF_REC, n, out, n, ABSENT);
}

/* Files of half precision keep X small: their later layers put out less, so what was before does.
 */
void plan_rwkv_end(struct builder *b)
{
    uint32_t every = 0;
    if (!b->err)
        b->err = key_u32(b->m, "rescale_every_n_layers", &every, b->e);
    if (every && (b->layer + 1) % every == 0)
        plan_add(b, OP_SCALE, BUF_X, BUF_X)->scale = 0.5f;
}

/* --- both ------------------------------------------------------------------------------------ */

/* Of what only layers with the usual feed-forward part may lack. */
static bool has_or_must(const struct builder *b, const char *stem)
{
    return !b->arch->usual_ff || plan_has(b, stem);
}

void plan_rwkv(struct builder *b, enum model_buf in, enum model_buf out)
{
    static const char *const rate[] = {"time_mix_a1", "time_mix_a2", "time_mix_a0"};
    static const char *const gate[] = {"time_mix_g1", "time_mix_g2", NULL};
    const uint32_t n = b->m->hp.n_embd;
    const bool gated = has_or_must(b, "time_mix_g1"), normed = has_or_must(b, "time_mix_ln");
    const struct gguf_tensor *lerps[N_LERPS] = {NULL};
    if (b->arch->recurrence == RECURRENCE_RWKV6) {
        add_sixth(b, in, out);
        return;
    }
    take_lerps(b, gated, lerps);
    add_shift(b, in, 0);
    add_lerp(b, in, lerps[LERP_R]);
    plan_linear(b, "time_mix_receptance", BUF_ATT, n, BUF_Q, n, ABSENT);
    add_lerp(b, in, lerps[LERP_W]);
    add_rates(b);
    add_lerp(b, in, lerps[LERP_K]);
    plan_linear(b, "time_mix_key", BUF_ATT, n, BUF_K, n, ABSENT);
    add_lerp(b, in, lerps[LERP_V]);
    add_values(b);
    if (gated) {
        add_lerp(b, in, lerps[LERP_G]);
        add_narrow(b, gate, rank_of(b, RANK_GATE), UNARY_SIGMOID, BUF_REC_GATE);
    }
    add_lerp(b, in, lerps[LERP_A]);
    add_narrow(b, rate, rank_of(b, RANK_RATE), UNARY_NONE, BUF_BETA);
    plan_unary(b, BUF_BETA, n, UNARY_SIGMOID);
    add_keys(b);
    add_heads(b, RECUR_DELTA_APART);
    if (normed)
        add_rec_norm(b);
    add_bonus(b, take_row(b, "time_mix_r_k"));
    if (gated)
        plan_product(b, GATE_PLAIN, BUF_REC_GATE, BUF_REC, BUF_REC);
    plan_linear(b, "time_mix_output", BUF_REC, n, out, n, ABSENT);
}

void plan_rwkv_channels(struct builder *b, enum model_buf in)
{
    const uint32_t n = b->m->hp.n_embd, n_ff = b->m->layers[b->layer].n_ff;
    add_shift(b, in, 1);
    plan_copy(b, BUF_MIX, 1, BUF_REC, 0);
    add_mul(b, BUF_REC, take_row(b, "channel_mix_lerp_k"), BUF_ATT);
    plan_add(b, OP_ADD, in, BUF_ATT);
    plan_linear(b, "channel_mix_key", BUF_ATT, n, BUF_GATE, n_ff, ABSENT);
    plan_unary(b, BUF_GATE, n_ff, UNARY_RELU_SQUARE);
    plan_linear(b, "channel_mix_value", BUF_GATE, n_ff, BUF_OUT, n, ABSENT);
    if (b->arch->recurrence != RECURRENCE_RWKV6)
        return;
    add_mul(b, BUF_REC, take_row(b, "channel_mix_lerp_r"), BUF_ATT);
    plan_add(b, OP_ADD, in, BUF_ATT);
    plan_linear(b, "channel_mix_receptance", BUF_ATT, n, BUF_REC_GATE, n, ABSENT);
    plan_product(b, GATE_SIGMOID, BUF_REC_GATE, BUF_OUT, BUF_OUT);
}
