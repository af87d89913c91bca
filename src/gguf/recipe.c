#include "gguf/recipe.h"

#include "gguf/quantize.h"

#include <stdio.h>
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
    static const char *const kept[] = {
        "_norm.weight", "ffn_gate_inp.weight", "ssm_conv1d", "shortconv.conv.weight"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        if (contains(t, kept[i]))
            return true;
    }
    return t->n_dims < 2 || t->ne[1] * t->ne[2] * t->ne[3] == 1 || !ends_in(t, "weight") ||
           is_named(t, "position_embd.weight") || is_named(t, "token_types.weight");
}

/* What of the model decides beside the tensor's name. */
struct shape {
    uint32_t n_layers, n_experts, n_heads, n_kv_heads;
    bool tied; /* the embeddings are the output matrix too */
};

static enum err read_shape(const struct gguf *g, struct shape *s, struct err_info *e)
{
    const struct {
        const char *key;
        uint32_t *to;
    } keys[] = {{"block_count", &s->n_layers},
                {"expert_count", &s->n_experts},
                {"attention.head_count", &s->n_heads},
                {"attention.head_count_kv", &s->n_kv_heads}};
    struct gguf_str arch = {"", 0};
    enum err err = gguf_get_str(g, "general.architecture", &arch, e);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !err; i++) {
        char key[128];
        snprintf(key,
                 sizeof key,
                 "%.*s.%s",
                 (int)(arch.len < 64 ? arch.len : 64),
                 arch.data,
                 keys[i].key);
        const struct gguf_kv *kv = gguf_find(g, key);
        if (kv && kv->kind != GGUF_ARRAY) /* some have a number for each layer */
            err = gguf_get_u32(g, key, keys[i].to, e);
    }
    s->tied = !gguf_find_tensor(g, "output.weight");
    return err;
}

/* The first and last eighth, and every third between. */
static bool has_more_bits(uint32_t layer, uint32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

/* N of "blk.N."; 0 of any other name. */
static uint32_t layer_of(const struct gguf_tensor *t)
{
    uint32_t n = 0;
    if (t->name.len < 4 || memcmp(t->name.data, "blk.", 4) != 0)
        return 0;
    for (size_t i = 4; i < t->name.len && i < 12; i++) {
        const char c = t->name.data[i];
        if (c < '0' || c > '9')
            break;
        n = n * 10 + (uint32_t)(c - '0');
    }
    return n;
}

/* Models of 70 B share one attn_v among eight heads, so more bits there cost little. */
static bool is_70b(const struct shape *s)
{
    return s->n_layers == 80 && s->n_heads != s->n_kv_heads;
}

static enum gguf_type mixed_type(const struct gguf_recipe *r,
                                 const struct shape *s,
                                 const struct gguf_tensor *t)
{
    const bool more = has_more_bits(layer_of(t), s->n_layers);
    const enum gguf_type type = r->type;
    if (contains(t, "attn_qkv.weight"))
        return more ? GGUF_TYPE_Q6_K : type;
    if (contains(t, "attn_v.weight") || contains(t, "attn_kv_b.weight")) {
        if (more)
            return GGUF_TYPE_Q6_K;
        return is_70b(s) && type == GGUF_TYPE_Q4_K ? GGUF_TYPE_Q5_K : type;
    }
    if (contains(t, "ffn_down"))
        return more ? GGUF_TYPE_Q6_K : type;
    if (contains(t, "attn_output.weight") && s->n_experts == 8 && type == GGUF_TYPE_Q4_K)
        return GGUF_TYPE_Q5_K;
    return type;
}

static enum gguf_type wanted_type(const struct gguf_recipe *r,
                                  const struct shape *s,
                                  const struct gguf_tensor *t)
{
    const bool is_output =
        is_named(t, "output.weight") || (s->tied && is_named(t, "token_embd.weight"));
    if (is_output) {
        if (t->ne[0] % gguf_type_info(r->type)->block_values != 0)
            return GGUF_TYPE_Q8_0;
        return r->type == GGUF_TYPE_Q8_0 ? GGUF_TYPE_Q8_0 : GGUF_TYPE_Q6_K;
    }
    if (s->n_experts == 8 && (contains(t, "attn_v.weight") || contains(t, "attn_k.weight")))
        return GGUF_TYPE_Q8_0;
    return r->mixed ? mixed_type(r, s, t) : r->type;
}

/* With blocks of 32, and no fewer bits. */
static enum gguf_type fallback(enum gguf_type type)
{
    switch (type) {
    case GGUF_TYPE_Q4_K:
        return GGUF_TYPE_Q5_0;
    case GGUF_TYPE_Q5_K:
        return GGUF_TYPE_Q5_1;
    case GGUF_TYPE_Q6_K:
        return GGUF_TYPE_Q8_0;
    default:
        return type;
    }
}

static bool fits(const struct gguf_tensor *t, enum gguf_type type)
{
    return t->ne[0] % gguf_type_info(type)->block_values == 0;
}

enum err gguf_recipe_type(const struct gguf_recipe *r,
                          const struct gguf *g,
                          const struct gguf_tensor *t,
                          enum gguf_type *out,
                          struct err_info *e)
{
    struct shape s = {0, 0, 0, 0, false};
    enum err err = read_shape(g, &s, e);
    *out = t->type;
    if (err || stays(t))
        return err;
    if (t->type != GGUF_TYPE_F32 && t->type != GGUF_TYPE_F16 && t->type != GGUF_TYPE_BF16) {
        char name[72];
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "tensor \"%s\" is %s: only F32, F16 and BF16 are quantised",
                       gguf_show(t->name, name, sizeof name),
                       gguf_type_name((uint32_t)t->type));
    }
    enum gguf_type type = wanted_type(r, &s, t);
    if (!fits(t, type))
        type = fallback(type);
    if (fits(t, type))
        *out = type;
    return OK;
}
