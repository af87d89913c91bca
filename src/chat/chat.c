#include "chat/chat.h"

#include "base/mem.h"
#include "chat/chatml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chat_template {
    enum template_kind { TEMPLATE_NONE, TEMPLATE_UNSUPPORTED, TEMPLATE_CHATML } kind;
    bool wants_bos;
};

/* The longest template of a released model has some 20 KB. */
#define MAX_SOURCE_BYTES (1024 * 1024)

struct chat_template *chat_template_create(const char *source, size_t n_bytes)
{
    struct chat_template *t = mem_zalloc(1, sizeof *t);
    if (!source || n_bytes == 0)
        t->kind = TEMPLATE_NONE;
    else if (n_bytes <= MAX_SOURCE_BYTES && chatml_matches(source, n_bytes, &t->wants_bos))
        t->kind = TEMPLATE_CHATML;
    else
        t->kind = TEMPLATE_UNSUPPORTED;
    return t;
}

void chat_template_destroy(struct chat_template *t)
{
    free(t);
}

const char *chat_template_name(const struct chat_template *t)
{
    static const char *const names[] = {
        [TEMPLATE_NONE] = "none",
        [TEMPLATE_UNSUPPORTED] = "unsupported",
        [TEMPLATE_CHATML] = "chatml",
    };
    return names[t->kind];
}

bool chat_template_wants_bos(const struct chat_template *t)
{
    return t->kind == TEMPLATE_CHATML && t->wants_bos;
}

/* ---- prompts ---- */

void chat_prompt_deinit(struct chat_prompt *p)
{
    buf_deinit(&p->text);
    free(p->spans);
    *p = (struct chat_prompt){0};
}

/* Append a run; one of the same trust as the last becomes part of it. */
static void add_run(struct chat_prompt *p, const char *s, size_t n, bool trusted)
{
    if (n == 0)
        return;
    size_t begin = p->text.len;
    buf_add(&p->text, s, n);
    if (p->n_spans > 0 && p->spans[p->n_spans - 1].trusted == (int)trusted) {
        p->spans[p->n_spans - 1].end = p->text.len;
        return;
    }
    if (p->n_spans == p->cap_spans) {
        p->cap_spans = p->cap_spans ? 2 * p->cap_spans : 16;
        p->spans = mem_realloc(p->spans, p->cap_spans * sizeof *p->spans);
    }
    p->spans[p->n_spans++] = (struct chat_span){begin, p->text.len, trusted};
}

static void add_trusted(struct chat_prompt *p, const char *s)
{
    add_run(p, s, strlen(s), true);
}

/* ---- ChatML ---- */

/* The role as a constant of ours, which is why it may stand in a trusted run; NULL if unknown. */
static const char *chatml_role(const struct chat_message *m)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strlen(roles[i]) == m->role_len && memcmp(roles[i], m->role, m->role_len) == 0)
            return roles[i];
    return NULL;
}

static enum err render_chatml(const struct chat_message *messages,
                              size_t n_messages,
                              struct chat_prompt *out,
                              struct err_info *e)
{
    for (size_t i = 0; i < n_messages; i++) {
        const struct chat_message *m = &messages[i];
        const char *role = chatml_role(m);
        if (!role) {
            char field[48];
            snprintf(field, sizeof field, "messages[%zu].role", i);
            return err_set_field(e,
                                 ERR_INVALID,
                                 field,
                                 "'%.*s' is none of system, user, assistant, tool",
                                 (int)(m->role_len < 40 ? m->role_len : 40),
                                 m->role);
        }
        add_trusted(out, "<|im_start|>");
        add_trusted(out, role);
        add_trusted(out, "\n");
        add_run(out, m->content, m->content_len, false);
        add_trusted(out, "<|im_end|>\n");
    }
    add_trusted(out, "<|im_start|>assistant\n");
    return OK;
}

enum err chat_render(const struct chat_template *t,
                     const struct chat_message *messages,
                     size_t n_messages,
                     struct chat_prompt *out,
                     struct err_info *e)
{
    switch (t->kind) {
    case TEMPLATE_NONE:
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "the model has no chat template; use the completions route with a prompt");
    case TEMPLATE_UNSUPPORTED:
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "the model's chat template is not plain ChatML, the only one that Weir "
                       "renders; use the completions route with a prompt");
    case TEMPLATE_CHATML:
        return render_chatml(messages, n_messages, out, e);
    }
    return err_set(e, ERR_INTERNAL, "chat template of kind %d", (int)t->kind);
}
