/* Experts: a router's scores select some of them for each row, and their results are mixed. What
 * the file says of them, and their plan. */
#include "model/build.h"
#include "model/keys.h"

#include <math.h>
#include <stdio.h>

/* Far above any real model; products stay inside 64 bits. */
#define MAX_EXPERTS 1024
#define MAX_EXPERTS_USED 64
#define MAX_EXPERT_WIDTH (1u << 22) /* n_expert_used * (n_embd or n_ff_expert) */

/* --- what the file says ---------------------------------------------------------------------- */

static bool has_select_bias(const struct model *m)
{
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        char name[48], bare[48];
        snprintf(name, sizeof name, "blk.%u.exp_probs_b.bias", i);
        snprintf(bare, sizeof bare, "blk.%u.exp_probs_b", i);
        if (gguf_find_tensor(m->gguf, name) || gguf_find_tensor(m->gguf, bare))
            return true;
    }
    return false;
}

/* Groups of experts, of which some are selected from. */
static enum err read_groups(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    hp->n_expert_group = 1;
    enum err err = key_u32_in(m, "expert_group_count", 0, hp->n_expert, &hp->n_expert_group, e);
    if (err || hp->n_expert_group <= 1)
        return err;
    if (hp->n_expert % hp->n_expert_group != 0)
        return err_set(e,
                       ERR_FORMAT,
                       "%s.expert_group_count is %u, which does not divide expert_count, %u",
                       m->arch,
                       hp->n_expert_group,
                       hp->n_expert);
    err = key_u32_in(
        m, "expert_group_used_count", 1, hp->n_expert_group, &hp->n_expert_group_used, e);
    const uint32_t n = hp->n_expert / hp->n_expert_group * hp->n_expert_group_used;
    if (!err && n < hp->n_expert_used)
        err = err_set(e,
                      ERR_FORMAT,
                      "%s.expert_group_used_count is %u: of %u experts %u cannot be selected",
                      m->arch,
                      hp->n_expert_group_used,
                      n,
                      hp->n_expert_used);
    return err;
}

/* Softmax, over all experts or over the selected ones, or sigmoids, which is what the plan
 * computes. */
static enum err read_gating(struct model *m, const struct arch *arch, struct err_info *e)
{
    uint32_t gating = 0;
    enum err err = key_u32(m, "expert_gating_func", &gating, e);
    if (err)
        return err;
    if (gating > 3)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "%s.expert_gating_func is %u; softmax (1, 3) and sigmoid (2) are supported",
                       m->arch,
                       gating);
    if (gating == 3 && (m->hp.n_expert_group > 1 || has_select_bias(m)))
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "%s.expert_gating_func is 3, beside groups of experts or exp_probs_b: "
                       "selection by raw scores with these is not supported",
                       m->arch);
    m->hp.expert_sigmoid =
        gating == 2 || (gating == 0 && (arch->gating == GATING_SIGMOID ||
                                        (arch->gating == GATING_BY_BIAS && has_select_bias(m))));
    if ((err = arch->expert_all ? key_bool(m, "expert_weights_norm", &m->hp.expert_norm, e) : OK) ||
        (err = key_f32_in(m, "expert_weights_scale", -1e-30f, 1e6f, &m->hp.expert_scale, e)))
        return err;
    if (gating == 3) /* softmax over the selected */
        m->hp.expert_norm = true;
    if (m->hp.expert_scale == 0.0f) /* how some files say that there is none */
        m->hp.expert_scale = 1.0f;
    return OK;
}

/* Every layer has a feed-forward part, unless the architecture knows gaps. */
static enum err check_dense(const struct model *m, const struct arch *arch, struct err_info *e)
{
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        if (m->layers[i].n_ff == 0 && !(arch->gaps && m->hp.n_ff) &&
            arch->recurrent_layers != RECURRENT_ALL)
            return err_set(
                e, ERR_FORMAT, "metadata key %s.feed_forward_length is missing or 0", m->arch);
    }
    return OK;
}

/* The most that a layer has. */
static enum err read_most(
    const struct model *m, const char *key, uint32_t hi, uint32_t *most, struct err_info *e)
{
    enum err err = OK;
    for (uint32_t i = 0; i < m->hp.n_layer && !err; i++) {
        uint32_t v = 0;
        err = key_u32_layer(m, key, i, 0, hi, &v, e);
        *most = v > *most ? v : *most;
    }
    return err;
}

/* Experts of a row and their width, the same in each layer unless the architecture has that. */
static enum err read_widths(struct model *m, const struct arch *arch, struct err_info *e)
{
    static const char used[] = "expert_used_count", length[] = "expert_feed_forward_length";
    struct model_hparams *hp = &m->hp;
    const uint32_t most = hp->n_expert < MAX_EXPERTS_USED ? hp->n_expert : MAX_EXPERTS_USED;
    const bool by_layer = arch->experts_by_layer;
    uint32_t n_ff = 0;
    enum err err = by_layer ? read_most(m, used, most, &hp->n_expert_used, e)
                            : key_u32_in(m, used, 1, most, &hp->n_expert_used, e);
    if (err)
        return err;
    if (hp->n_expert_used == 0)
        return err_set(e, ERR_FORMAT, "metadata key %s.%s is missing or 0", m->arch, used);
    hp->n_ff_expert = arch->expert_ff_by_rank ? hp->n_ff / hp->n_expert_used : hp->n_ff;
    if (!by_layer)
        return key_u32_or_0(m, length, 1, MAX_FF, &hp->n_ff_expert, e);
    err = read_most(m, length, MAX_FF, &n_ff, e);
    hp->n_ff_expert = n_ff ? n_ff : hp->n_ff_expert;
    if (!err && hp->n_ff_expert == 0)
        err = err_set(e, ERR_FORMAT, "metadata key %s.%s is missing or 0", m->arch, length);
    return err;
}

/* What the file says is how long experts are. */
static void set_dense_widths(struct model *m)
{
    m->hp.n_ff = m->hp.n_embd;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        m->layers[i].n_ff = m->hp.n_embd;
}

enum err experts_read(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    enum err err =
        key_u32_in(m, "expert_count", arch->experts == REQUIRED, MAX_EXPERTS, &hp->n_expert, e);
    if (err)
        return err;
    if (hp->n_expert == 1 && arch->experts == ABSENT) /* how some files say that there are none */
        hp->n_expert = 0;
    if (hp->n_expert && arch->experts == ABSENT)
        return err_set(e, ERR_UNSUPPORTED, "%s: models with experts are not supported", m->arch);
    hp->expert_norm = !arch->expert_all;
    hp->expert_input = arch->expert_input;
    hp->expert_mixer = arch->expert_mixer;
    hp->expert_scale = 1.0f;
    if (!hp->n_expert)
        return check_dense(m, arch, e);
    if ((err = read_widths(m, arch, e)))
        return err;
    if (arch->experts_first)
        set_dense_widths(m);
    const uint32_t widest = hp->n_ff_expert > hp->n_embd ? hp->n_ff_expert : hp->n_embd;
    if ((uint64_t)widest * hp->n_expert_used > MAX_EXPERT_WIDTH)
        return err_set(e,
                       ERR_FORMAT,
                       "%s.expert_used_count: %u experts of width %u a row",
                       m->arch,
                       hp->n_expert_used,
                       widest);
    uint32_t n_shared = 1;
    hp->n_ff_shared = arch->shared == REQUIRED || arch->shared_dense ? hp->n_ff : 0;
    if (arch->shared_by_count) {
        if ((err = key_u32_or_0(m, "expert_shared_count", 1, MAX_EXPERTS, &n_shared, e)))
            return err;
        if ((uint64_t)n_shared * hp->n_ff_expert > MAX_FF)
            return err_set(e, ERR_FORMAT, "%s.expert_shared_count is %u", m->arch, n_shared);
        hp->n_ff_shared = n_shared * hp->n_ff_expert;
    }
    if (arch->shared != ABSENT && (err = key_u32_or_0(m,
                                                      "expert_shared_feed_forward_length",
                                                      arch->shared == REQUIRED,
                                                      MAX_FF,
                                                      &hp->n_ff_shared,
                                                      e)))
        return err;
    const char *latent = arch->unary != UNARY_NONE ? "moe_latent_size" : "expert_latent_length";
    if ((err = read_groups(m, e)) ||
        (err = arch->expert_latent ? key_u32_in(m, latent, 0, hp->n_embd, &hp->n_expert_latent, e)
                                   : OK))
        return err;
    return read_gating(m, arch, e);
}

/* --- the plan -------------------------------------------------------------------------------- */

/* How many experts a row has in this layer, and how long they are. */
static void begin_experts(struct builder *b)
{
    const struct model_hparams *hp = &b->m->hp;
    uint32_t n_ff = 0;
    b->n_used = hp->n_expert_used;
    b->n_ff_expert = hp->n_ff_expert;
    if (!b->arch->experts_by_layer || b->err)
        return;
    b->err =
        key_u32_layer(b->m, "expert_used_count", b->layer, 1, hp->n_expert_used, &b->n_used, b->e);
    if (!b->err)
        b->err = key_u32_layer(
            b->m, "expert_feed_forward_length", b->layer, 0, hp->n_ff_expert, &n_ff, b->e);
    b->n_ff_expert = n_ff ? n_ff : b->n_ff_expert;
}

static void add_mix(struct builder *b, enum model_buf out, uint32_t n)
{
    struct op *op = plan_add(b, OP_MIX, BUF_EXPERT_OUT, out);
    op->n_head = b->n_used;
    op->n_out = n;
}

/* Of matrices with `rows` rows the n_out from first_row on. */
static void add_expert_linear(struct builder *b,
                              const char *stem,
                              enum model_buf in,
                              uint32_t n_in,
                              enum model_buf out,
                              uint32_t n_out,
                              uint32_t rows,
                              uint32_t first_row)
{
    const uint32_t n = b->m->hp.n_expert;
    struct op *op = plan_add(b, OP_EXPERTS, in, out);
    op->n_head = b->n_used;
    op->n_in = n_in;
    op->n_out = n_out;
    op->first_row = first_row;
    op->w = plan_take3(b, plan_name(b, stem, "weight"), n_in, rows, n, ANY_TYPE, REQUIRED);
    op->factor = plan_factor(b, op->w, n);
    op->bias = plan_take(b, plan_name(b, stem, "bias"), n_out, n, F32_ONLY, b->arch->expert_bias);
}

/* Of inputs of n_in values: gate and up, in two tensors or, for each expert, one below the other in
 * one; or up alone; then down. */
static void add_parts(struct builder *b, enum model_buf in, uint32_t n_in)
{
    const uint32_t n = b->n_ff_expert;
    const bool fused = plan_has(b, "ffn_gate_up_exps");
    const char *gate = fused ? "ffn_gate_up_exps" : "ffn_gate_exps";
    const char *up = fused ? gate : "ffn_up_exps";
    const uint32_t rows = fused ? 2 * n : n;
    if (b->arch->unary != UNARY_NONE) {
        add_expert_linear(b, "ffn_up_exps", in, n_in, BUF_EXPERT_GATE, n, n, 0);
        plan_unary(b, BUF_EXPERT_GATE, b->n_used * n, b->arch->unary);
    } else {
        add_expert_linear(b, gate, in, n_in, BUF_EXPERT_GATE, n, rows, 0);
        add_expert_linear(b, up, in, n_in, BUF_EXPERT_UP, n, rows, fused ? n : 0);
        plan_gated(b, BUF_EXPERT_GATE, BUF_EXPERT_UP, b->n_used * n);
    }
    add_expert_linear(b, "ffn_down_exps", BUF_EXPERT_GATE, n, BUF_EXPERT_OUT, n_in, n_in, 0);
}

/* Experts between two matrices that all of them share (Nemotron 3 Super), with a norm before the
 * second where there is one (Kimi K3). */
static void add_latent(struct builder *b, enum model_buf in, enum model_buf out)
{
    const uint32_t n_embd = b->m->hp.n_embd, n = b->m->hp.n_expert_latent;
    char down[32], norm[32], up[32];
    snprintf(down, sizeof down, "%s_down", b->arch->expert_latent);
    snprintf(norm, sizeof norm, "%s_norm", b->arch->expert_latent);
    snprintf(up, sizeof up, "%s_up", b->arch->expert_latent);
    plan_linear(b, down, in, n_embd, BUF_LOW, n, ABSENT);
    add_parts(b, BUF_LOW, n);
    add_mix(b, BUF_LOW, n);
    if (plan_has(b, norm))
        plan_part_norm(b, norm, BUF_LOW, n);
    plan_linear(b, up, BUF_LOW, n, out, n_embd, ABSENT);
}

static void add_selected(struct builder *b, enum model_buf in, enum model_buf out)
{
    const uint32_t n_embd = b->m->hp.n_embd;
    if (b->m->hp.n_expert_latent) {
        add_latent(b, in, out);
        return;
    }
    add_parts(b, in, n_embd);
    add_mix(b, out, n_embd);
}

/* The shared expert's gate and up, in two tensors or in one, or up alone, and what weighs it. */
static void add_shared_inputs(struct builder *b, enum model_buf in, uint32_t n)
{
    const uint32_t n_embd = b->m->hp.n_embd;
    const bool dense = b->arch->shared_dense;
    const char *gate_stem = dense ? "ffn_gate" : "ffn_gate_shexp";
    const char *up_stem = dense ? "ffn_up" : "ffn_up_shexp";
    const struct gguf_tensor *up = gguf_find_tensor(b->m->gguf, plan_name(b, up_stem, "weight"));
    if (b->arch->unary != UNARY_NONE) {
        plan_linear(b, up_stem, in, n_embd, BUF_GATE, n, ABSENT);
    } else if (!plan_has(b, gate_stem) && up && up->ne[1] == 2 * (uint64_t)n) {
        const uint32_t ns[] = {n, n};
        plan_stacked(b, up_stem, in, (enum model_buf[]){BUF_GATE, BUF_UP}, ns, 2, ABSENT);
    } else {
        plan_linear(b, gate_stem, in, n_embd, BUF_GATE, n, ABSENT);
        plan_linear(b, up_stem, in, n_embd, BUF_UP, n, ABSENT);
    }
    if (b->arch->shared_gate == REQUIRED)
        plan_linear(b, "ffn_gate_inp_shexp", in, n_embd, BUF_SHARED_GATE, 1, ABSENT);
}

/* How long the layer's shared expert is; 0: it has none. */
static uint32_t shared_length(const struct builder *b)
{
    if (b->arch->shared_dense)
        return plan_has(b, "ffn_up") ? b->m->layers[b->layer].n_ff : 0;
    return b->m->hp.n_ff_shared;
}

void plan_router(struct builder *b, enum model_buf in)
{
    const struct model_hparams *hp = &b->m->hp;
    const enum presence bias = b->arch->expert_bias;
    plan_linear(b, "ffn_gate_inp", in, hp->n_embd, BUF_ROUTER, hp->n_expert, bias);
}

/* The first linears of the shared expert stand beside the router, where that reads the same rows.
 */
void plan_experts(struct builder *b, enum model_buf in)
{
    const struct model_hparams *hp = &b->m->hp;
    const struct arch *arch = b->arch;
    const uint32_t n_embd = hp->n_embd, n_shared = shared_length(b);
    if (!arch->router_first)
        plan_router(b, in);
    if (n_shared)
        add_shared_inputs(b, in, n_shared);
    begin_experts(b);
    struct op *op = plan_add(b, OP_SELECT, BUF_ROUTER, BUF_ROUTER);
    op->n_head = b->n_used;
    const char *bias = plan_name(b, "exp_probs_b", "bias");
    if (!gguf_find_tensor(b->m->gguf, bias)) /* as some files call it */
        bias = plan_bare_name(b, "exp_probs_b");
    op->bias = plan_take(b, bias, hp->n_expert, 1, F32_ONLY, arch->select_bias);
    add_selected(b, in, BUF_OUT);
    if (!n_shared)
        return;
    if (arch->unary != UNARY_NONE)
        plan_unary(b, BUF_GATE, n_shared, arch->unary);
    else
        plan_gated(b, BUF_GATE, BUF_UP, n_shared);
    const char *down = arch->shared_dense ? "ffn_down" : "ffn_down_shexp";
    plan_linear(b, down, BUF_GATE, n_shared, BUF_SHARED, n_embd, ABSENT);
    plan_add(b, arch->shared_gate == REQUIRED ? OP_ADD_GATED : OP_ADD, BUF_SHARED, BUF_OUT)->in2 =
        BUF_SHARED_GATE;
    if (arch->shared_average || arch->shared_dense)
        plan_add(b, OP_SCALE, BUF_OUT, BUF_OUT)->scale = arch->shared_dense ? sqrtf(0.5f) : 0.5f;
}

void plan_experts_first(struct builder *b)
{
    plan_norm(b, "ffn_norm_exps", BUF_X, BUF_H);
    plan_router(b, BUF_H);
    begin_experts(b);
    plan_add(b, OP_SELECT, BUF_ROUTER, BUF_ROUTER)->n_head = b->n_used;
    add_selected(b, BUF_H, BUF_SHARED);
}

/* The router reads the stream by a norm of its own, the experts by another (Gemma 4). */
void plan_experts_beside(struct builder *b)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_embd = hp->n_embd;
    plan_norm(b, "post_ffw_norm_1", BUF_OUT, BUF_OUT);
    struct op *op = plan_add(b, OP_NORM, BUF_X, BUF_H);
    op->w = plan_take(b, plan_name(b, "ffn_gate_inp", "scale"), n_embd, 1, F32_ONLY, REQUIRED);
    plan_add(b, OP_SCALE, BUF_H, BUF_H)->scale = 1.0f / sqrtf((float)n_embd);
    plan_linear(b, "ffn_gate_inp", BUF_H, n_embd, BUF_ROUTER, hp->n_expert, ABSENT);
    begin_experts(b);
    op = plan_add(b, OP_SELECT, BUF_ROUTER, BUF_ROUTER);
    op->n_head = b->n_used;
    const struct gguf_tensor *down =
        gguf_find_tensor(b->m->gguf, plan_name(b, "ffn_down_exps", "weight"));
    const bool factor = down && down->type == GGUF_TYPE_NVFP4; /* which is called the same */
    op->w = plan_take(b,
                      plan_name(b, "ffn_down_exps", "scale"),
                      hp->n_expert,
                      1,
                      F32_ONLY,
                      factor ? ABSENT : OPTIONAL);
    plan_norm(b, "pre_ffw_norm_2", BUF_X, BUF_H);
    add_selected(b, BUF_H, BUF_SHARED);
    plan_norm(b, "post_ffw_norm_2", BUF_SHARED, BUF_SHARED);
    plan_add(b, OP_ADD, BUF_SHARED, BUF_OUT);
}
