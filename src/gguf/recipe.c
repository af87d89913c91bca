#include "gguf/recipe.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct gguf_recipe recipes[] = {
    {"Q4_0", 2, GGUF_TYPE_Q4_0, false},
    {"Q8_0", 7, GGUF_TYPE_Q8_0, false},
    {"Q4_K_M", 15, GGUF_TYPE_Q4_K, true},
    {"Q5_K_M", 17, GGUF_TYPE_Q5_K, true},
    {"Q6_K", 18, GGUF_TYPE_Q6_K, false},
};

const struct gguf_recipe *gguf_find_recipe(const char *name)
{
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        if (strcasecmp(recipes[i].name, name) == 0)
            return &recipes[i];
    }
    return NULL;
}

static bool is_named(const struct gguf_tensor *t, const char *name)
{
    return t->name.len == strlen(name) && memcmp(t->name.data, name, t->name.len) == 0;
}

static bool contains(const struct gguf_tensor *t, const char *part)
{
    return memmem(t->name.data, t->name.len, part, strlen(part)) != NULL;
}

static bool ends_in(const struct gguf_tensor *t, const char *end)
{
    const size_t n = strlen(end);
    return t->name.len >= n && memcmp(t->name.data + t->name.len - n, end, n) == 0;
}

/* Matrices that stay: small, and sensitive. */
static bool stays(const struct gguf_tensor *t)
{
    static const char *const kept[] = {"_norm.weight",
                                       "ffn_gate_inp.weight",
                                       "altup",
                                       "laurel",
                                       "per_layer_model_proj",
                                       "ssm_conv1d",
                                       "shortconv.conv.weight",
                                       "indexer.q_proj.weight",
                                       "indexer.k_proj.weight",
                                       /* RWKV's, some of which must be floats to run */
                                       "time_mix_first.weight",
                                       "time_mix_w0.weight",
                                       "time_mix_w1.weight",
                                       "time_mix_w2.weight",
                                       "time_mix_v0.weight",
                                       "time_mix_v1.weight",
                                       "time_mix_v2.weight",
                                       "time_mix_a0.weight",
                                       "time_mix_a1.weight",
                                       "time_mix_a2.weight",
                                       "time_mix_g1.weight",
                                       "time_mix_g2.weight",
                                       "time_mix_decay_w1.weight",
                                       "time_mix_decay_w2.weight",
                                       "time_mix_lerp_fused.weight"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        if (contains(t, kept[i]))
            return true;
    }
    return t->n_dims < 2 || t->ne[1] * t->ne[2] * t->ne[3] == 1 || !ends_in(t, "weight") ||
           is_named(t, "position_embd.weight") || is_named(t, "token_types.weight");
}

/* What of the model decides beside the tensor's name, and what was counted so far. */
struct model {
    struct gguf_str arch;
    uint32_t n_layers, n_loops, n_experts, n_heads, n_kv_heads;
    uint32_t n_values; /* matrices that make values, kept ones too */
    bool tied;         /* the embeddings are the output matrix too */
    uint32_t at_value, at_down;
};

static bool is_arch(const struct model *m, const char *name)
{
    return m->arch.len == strlen(name) && memcmp(m->arch.data, name, m->arch.len) == 0;
}

/* Alone, with Q and K, or with K from a latent. */
static bool makes_values(const struct gguf_tensor *t)
{
    return contains(t, "attn_v.weight") || contains(t, "attn_qkv.weight") ||
           contains(t, "attn_kv_b.weight");
}

static enum err read_model(const struct gguf *g, struct model *m, struct err_info *e)
{
    const struct {
        const char *key;
        uint32_t *to;
    } keys[] = {{"block_count", &m->n_layers},
                {"num_loops", &m->n_loops},
                {"expert_count", &m->n_experts},
                {"attention.head_count", &m->n_heads},
                {"attention.head_count_kv", &m->n_kv_heads}};
    enum err err = gguf_get_str(g, "general.architecture", &m->arch, e);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !err; i++) {
        char key[128];
        snprintf(key,
                 sizeof key,
                 "%.*s.%s",
                 (int)(m->arch.len < 64 ? m->arch.len : 64),
                 m->arch.data,
                 keys[i].key);
        const struct gguf_kv *kv = gguf_find(g, key);
        if (kv && kv->kind != GGUF_ARRAY) /* some have a number for each layer */
            err = gguf_get_u32(g, key, keys[i].to, e);
    }
    if (m->n_loops > 0 && m->n_layers < UINT16_MAX && m->n_loops < UINT16_MAX)
        m->n_layers *= m->n_loops; /* each layer counts as often as it is gone through */
    m->tied = !gguf_find_tensor(g, "output.weight");
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++)
        m->n_values += makes_values(gguf_tensor_at(g, i));
    return err;
}

/* The first and last eighth, and every third between. */
static bool has_more_bits(uint32_t i, uint32_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

/* N of "blk.N."; -1 of any other name. */
static int32_t layer_of(const struct gguf_tensor *t)
{
    int32_t n = -1;
    if (t->name.len < 4 || memcmp(t->name.data, "blk.", 4) != 0)
        return n;
    for (size_t i = 4; i < t->name.len && i < 12; i++) {
        const char c = t->name.data[i];
        if (c < '0' || c > '9')
            break;
        n = (n < 0 ? 0 : n) * 10 + (c - '0');
    }
    return n;
}

/* Models of 70 B share one attn_v among eight heads, so more bits there cost little. */
static bool is_70b(const struct model *m)
{
    if (is_arch(m, "jais2"))
        return m->n_layers == 68;
    if (is_arch(m, "llama"))
        return m->n_layers == 80 && m->n_heads != m->n_kv_heads;
    return m->n_layers == 80 && (is_arch(m, "qwen2") || is_arch(m, "deci") || is_arch(m, "olmo"));
}

/* By its number among its kind: not all layers have one. */
static enum gguf_type value_type(const struct gguf_recipe *r, struct model *m)
{
    const bool more = r->mixed && has_more_bits(m->at_value++, m->n_values);
    if (m->n_experts == 8)
        return GGUF_TYPE_Q8_0;
    if (more)
        return GGUF_TYPE_Q6_K;
    return r->type == GGUF_TYPE_Q4_K && is_70b(m) ? GGUF_TYPE_Q5_K : r->type;
}

/* By its number among its kind out of as many as there are layers; with experts, where a layer may
 * have several, by the layer. */
static enum gguf_type down_type(const struct gguf_recipe *r,
                                struct model *m,
                                const struct gguf_tensor *t)
{
    const int32_t layer = layer_of(t);
    const uint32_t i = m->n_experts <= 1 ? m->at_down++ : layer < 0 ? 0 : (uint32_t)layer;
    if (!r->mixed || !has_more_bits(i, m->n_layers))
        return r->type;
    if (is_arch(m, "falcon") && r->type == GGUF_TYPE_Q4_K && i >= m->n_layers / 16)
        return GGUF_TYPE_Q5_K;
    return GGUF_TYPE_Q6_K;
}

static bool fits(const struct gguf_tensor *t, enum gguf_type type)
{
    return t->ne[0] % gguf_type_info(type)->block_values == 0;
}

static enum gguf_type output_type(const struct gguf_recipe *r,
                                  const struct model *m,
                                  const struct gguf_tensor *t)
{
    const bool plain = is_arch(m, "falcon") || !fits(t, r->type) || r->type == GGUF_TYPE_Q8_0;
    return plain ? GGUF_TYPE_Q8_0 : GGUF_TYPE_Q6_K;
}

/* Counts t in m: to be called once for each, in order. */
static enum gguf_type wanted_type(const struct gguf_recipe *r,
                                  struct model *m,
                                  const struct gguf_tensor *t)
{
    const bool embeds =
        is_named(t, "token_embd.weight") || is_named(t, "per_layer_token_embd.weight");
    if (is_named(t, "output.weight") || (embeds && m->tied))
        return output_type(r, m, t);
    if (makes_values(t))
        return value_type(r, m);
    if (contains(t, "attn_k.weight") && m->n_experts == 8)
        return GGUF_TYPE_Q8_0;
    if (contains(t, "attn_output.weight") && m->n_experts == 8 && r->type == GGUF_TYPE_Q4_K)
        return GGUF_TYPE_Q5_K;
    return contains(t, "ffn_down") ? down_type(r, m, t) : r->type;
}

/* With blocks of 32 and no fewer bits, or with none. */
static enum gguf_type fallback(const struct gguf_tensor *t, enum gguf_type type)
{
    if (fits(t, type))
        return type;
    if (!fits(t, GGUF_TYPE_Q8_0))
        return GGUF_TYPE_F16;
    switch (type) {
    case GGUF_TYPE_Q4_K:
        return GGUF_TYPE_Q5_0;
    case GGUF_TYPE_Q5_K:
        return GGUF_TYPE_Q5_1;
    default:
        return GGUF_TYPE_Q8_0;
    }
}

static enum err check_source(const struct gguf_tensor *t, struct err_info *e)
{
    char name[72];
    if (stays(t) || t->type == GGUF_TYPE_F32 || t->type == GGUF_TYPE_F16 ||
        t->type == GGUF_TYPE_BF16)
        return OK;
    return err_set(e,
                   ERR_UNSUPPORTED,
                   "tensor \"%s\" is %s: only F32, F16 and BF16 are quantised",
                   gguf_show(t->name, name, sizeof name),
                   gguf_type_name((uint32_t)t->type));
}

struct place {
    const struct gguf_tensor *t;
    uint64_t i; /* in the file */
    int32_t layer;
};

/* By layer, then by the bytes of the name. */
static int by_layer_and_name(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    const struct gguf_str p = x->t->name, q = y->t->name;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    const int order = memcmp(p.data, q.data, p.len < q.len ? p.len : q.len);
    return order ? order : (p.len > q.len) - (p.len < q.len);
}

enum err gguf_recipe_types(const struct gguf_recipe *r,
                           const struct gguf *g,
                           enum gguf_type *out,
                           struct err_info *e)
{
    const uint64_t n = gguf_n_tensors(g);
    struct model m = {.arch = {"", 0}};
    enum err err = read_model(g, &m, e);
    struct place *places = mem_alloc((n ? n : 1) * sizeof *places);
    for (uint64_t i = 0; i < n && !err; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        places[i] = (struct place){t, i, layer_of(t)};
        err = check_source(t, e);
    }
    if (!err)
        qsort(places, n, sizeof *places, by_layer_and_name);
    for (uint64_t i = 0; i < n && !err; i++) {
        const struct gguf_tensor *t = places[i].t;
        out[places[i].i] = stays(t) ? t->type : fallback(t, wanted_type(r, &m, t));
    }
    free(places);
    return err;
}
