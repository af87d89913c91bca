/* Recurrent layers: which they are, and of what sizes by what the file says. */
#include "model/build.h"
#include "model/keys.h"

/* Far above any real model; products stay inside 64 bits. */
#define MIN_CONV_WIDTH 2
#define MAX_INNER (1u << 20)
#define MAX_REC_HEADS 1024
#define MAX_REC_DIM 1024
#define MAX_REC_RANK (1u << 14)
#define MAX_CHANNEL_KEY 256 /* as many as kernels have registers for */
#define MAX_CONV_CHANNELS (1u << 21)

/* All layers but every n-th, or those of a list. */
static enum err read_interval(struct model *m, const struct arch *arch, struct err_info *e)
{
    uint32_t every = arch->attention_step ? arch->attention_step : 4;
    const struct gguf_kv *list = key_find(m, "attention.recurrent_layers");
    enum err err = key_u32_in(m, "full_attention_interval", 1, 1u << 20, &every, e);
    if (err)
        return err;
    if (list && !key_is_flags(list, m->hp.n_layer))
        return err_set(
            e, ERR_FORMAT, "%s.attention.recurrent_layers is not %u bools", m->arch, m->hp.n_layer);
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        m->layers[i].recurrent = list ? key_flag(list, i) : (i + 1) % every != 0;
    return OK;
}

enum err recurrent_read_layers(struct model *m, const struct arch *arch, struct err_info *e)
{
    enum err err = OK;
    if (arch->recurrence == RECURRENCE_NONE)
        return OK;
    if (arch->recurrent_layers == RECURRENT_BY_INTERVAL)
        err = read_interval(m, arch, e);
    for (uint32_t i = 0; i < m->hp.n_layer && !err; i++) {
        struct model_layer *l = &m->layers[i];
        if (arch->recurrent_layers == RECURRENT_BY_HEADS)
            l->recurrent = l->n_head_kv == 0 && (!arch->gaps || l->n_ff == 0);
        else if (arch->recurrent_layers != RECURRENT_BY_INTERVAL)
            l->recurrent = true;
        if ((l->recurrent && arch->recurrent_layers != RECURRENT_BESIDE) || l->n_head_kv == 0)
            l->n_head = l->n_head_kv = 0;
    }
    return err;
}

static enum err check_channels(const struct model *m, struct err_info *e)
{
    if (m->hp.conv_channels <= MAX_CONV_CHANNELS)
        return OK;
    return err_set(e,
                   ERR_FORMAT,
                   "%s: recurrent layers of %u values, at most %u are supported",
                   m->arch,
                   m->hp.conv_channels,
                   MAX_CONV_CHANNELS);
}

static bool in_one_group(const struct arch *arch)
{
    return arch->recurrence == RECURRENCE_MAMBA2_NORMED;
}

/* Heads, the groups that share keys and queries, and how long they are. A file of which all heads
 * share them says that there are no groups. */
static enum err read_heads(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    uint32_t inner = 0, none = 0;
    const bool one = in_one_group(arch);
    enum err err;
    if ((err = key_u32_in(m, "ssm.inner_size", 1, MAX_INNER, &inner, e)) ||
        (err = key_u32_in(m, "ssm.state_size", 1, MAX_REC_DIM, &hp->rec_key, e)) ||
        (err = key_u32_in(m, "ssm.time_step_rank", 1, MAX_REC_HEADS, &hp->n_rec_head, e)) ||
        (err = one ? key_u32_in(m, "ssm.group_count", 0, 0, &none, e)
                   : key_u32_in(m, "ssm.group_count", 1, MAX_REC_HEADS, &hp->n_rec_group, e)))
        return err;
    hp->n_rec_group = one ? 1 : hp->n_rec_group;
    if (hp->n_rec_head % hp->n_rec_group != 0 || inner % hp->n_rec_head != 0 ||
        inner / hp->n_rec_head > MAX_REC_DIM)
        return err_set(e,
                       ERR_FORMAT,
                       "%s.ssm.inner_size %u, time_step_rank %u and group_count %u do not go "
                       "together",
                       m->arch,
                       inner,
                       hp->n_rec_head,
                       hp->n_rec_group);
    hp->rec_value = inner / hp->n_rec_head;
    if (arch->recurrence == RECURRENCE_DELTA_MIXED && hp->rec_value < 2) /* rates need two */
        return err_set(
            e, ERR_UNSUPPORTED, "%s: recurrent heads of one value are not supported", m->arch);
    hp->conv_channels = inner + (one ? 0 : 2 * hp->n_rec_group * hp->rec_key);
    if (one) /* of which no key says anything */
        hp->rec_rank = hp->n_embd / 16 > 64 ? hp->n_embd / 16 : 64;
    return OK;
}

/* Heads that are square, as many as attend, none of which share keys and queries (Kimi Linear). */
static enum err read_square_heads(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    enum err err = key_u32_in(m, "kda.head_dim", 1, MAX_REC_DIM, &hp->rec_key, e);
    hp->rec_value = hp->rec_key;
    hp->n_rec_head = hp->n_rec_group = hp->n_head;
    hp->conv_channels = 3 * hp->n_head * hp->rec_key;
    return err;
}

/* Heads that are those which attend in other layers, and nothing convolved. */
static enum err read_fixed(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    hp->conv_width = 1;
    hp->rec_key = hp->rec_value = hp->head_dim;
    hp->n_rec_head = hp->n_rec_group = hp->n_head;
    hp->conv_channels = 3 * hp->n_head * hp->head_dim;
    return check_channels(m, e);
}

/* Has each key a rate of its own? */
static bool for_each_key(const struct arch *arch)
{
    return arch->recurrence == RECURRENCE_DELTA_EACH ||
           arch->recurrence == RECURRENCE_DELTA_BOUNDED ||
           arch->recurrence == RECURRENCE_DELTA_GATED;
}

static bool by_channels(const struct arch *arch)
{
    return arch->recurrence == RECURRENCE_MAMBA || arch->recurrence == RECURRENCE_MAMBA_NORMED;
}

/* Channels are heads of one value each, in one group. */
static enum err read_channels(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    enum err err;
    if ((err = key_u32_in(m, "ssm.inner_size", 1, MAX_INNER, &hp->n_rec_head, e)) ||
        (err = key_u32_in(m, "ssm.state_size", 1, MAX_CHANNEL_KEY, &hp->rec_key, e)) ||
        (err = key_u32_in(m, "ssm.time_step_rank", 1, MAX_REC_RANK, &hp->rec_rank, e)))
        return err;
    hp->n_rec_group = hp->rec_value = 1;
    hp->conv_channels = hp->n_rec_head;
    return OK;
}

enum err recurrent_read(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    const bool conv = arch->recurrence == RECURRENCE_CONV;
    if (arch->recurrence == RECURRENCE_NONE)
        return OK;
    if (rwkv_is(arch))
        return rwkv_read(m, arch, e);
    if (arch->recurrence == RECURRENCE_FIXED)
        return read_fixed(m, e);
    enum err err = key_u32_in(m,
                              conv ? "shortconv.l_cache" : "ssm.conv_kernel",
                              MIN_CONV_WIDTH,
                              MODEL_MAX_CONV_WIDTH,
                              &hp->conv_width,
                              e);
    hp->conv_channels = hp->n_embd;
    if (!err && !conv)
        err = by_channels(arch)    ? read_channels(m, e)
              : for_each_key(arch) ? read_square_heads(m, e)
                                   : read_heads(m, arch, e);
    return err ? err : check_channels(m, e);
}

void recurrent_widths(struct model *m, const struct arch *arch)
{
    const struct model_hparams *hp = &m->hp;
    uint32_t *w = m->buf_width;
    if (arch->recurrence == RECURRENCE_NONE)
        return;
    if (rwkv_is(arch)) {
        rwkv_widths(m, arch);
        return;
    }
    const bool conv = arch->recurrence == RECURRENCE_CONV;
    w[BUF_MIX] = hp->conv_channels;
    w[BUF_RATE] = w[BUF_BETA] = hp->n_rec_head;
    w[BUF_REC] = w[BUF_REC_GATE] = conv ? hp->n_embd : hp->n_rec_head * hp->rec_value;
    if (for_each_key(arch)) {
        w[BUF_RATE] = w[BUF_REC];
        w[BUF_LOW] = hp->rec_key > w[BUF_LOW] ? hp->rec_key : w[BUF_LOW];
    }
    if (by_channels(arch)) {
        w[BUF_BETA] = hp->rec_rank;
        w[BUF_REC_KEY] = w[BUF_REC_QUERY] = hp->rec_key;
    }
    if (in_one_group(arch)) {
        w[BUF_MIX] += 2 * hp->rec_key;
        w[BUF_QUERY] = 2 * w[BUF_REC];
        w[BUF_BETA] = hp->rec_rank > hp->n_rec_head ? hp->rec_rank : hp->n_rec_head;
        w[BUF_REC_KEY] = w[BUF_REC_QUERY] = hp->rec_key;
    }
    if (arch->recurrent_layers == RECURRENT_BESIDE)
        w[BUF_SHARED] = hp->n_embd;
}
