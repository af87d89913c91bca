/* POST /infill: what belongs into the gap of a text. In every other way a completion of
 * llama-server's (native.c, native_parse.c).
 *
 *      BOS [REPO] name [FILE] name, text ... [FILE] name [PREFIX] prefix prompt [SUFFIX] suffix
 *      [MIDDLE] -> the answer
 *
 * Other files go before the one with the gap, the nearest last. Where the context is too small for
 * all of them, those furthest away are left out, whole. */
#include "api/native.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EXTRA 1024 /* files */
#define THE_REPO "myproject\n"
#define THE_FILE "filename\n"
#define BETWEEN "\n\n--- snippet ---\n\n" /* files of a model without a mark for them */

enum err infill_adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
{
    static const char *const names[] = {"prefix", "suffix", "middle"};
    for (int part = FIM_PREFIX; part <= FIM_MIDDLE; part++)
        if (tokenizer_fim(c->tokenizer, (enum fim_part)part) == TOKEN_NONE)
            return err_set(e,
                           ERR_UNSUPPORTED,
                           "the model has no token that marks the %s of a text with a gap, so it "
                           "cannot fill one in",
                           names[part]);
    json_t *copy = json_copy((json_t *)body);
    if (!copy)
        return err_set(e, ERR_NOMEM, "no memory to read the body");
    /* llama-server's stage of this name joins what may come next by its text; without it answers
     * differ a little, so clients that ask for it need not be refused */
    native_drop_text(copy, "samplers", "infill");
    enum err err = native_adapt(c, copy, out, e);
    json_decref(copy);
    return err;
}

static enum err add_text(const struct api_call *c,
                         const json_t *text,
                         struct token_list *ids,
                         struct err_info *e)
{
    return text ? native_encode(c->tokenizer, text, false, false, ids, e) : OK;
}

static enum err add_literal(const struct api_call *c,
                            const char *text,
                            struct token_list *ids,
                            struct err_info *e)
{
    struct text_piece piece = {.text = text, .n_bytes = strlen(text)};
    return tokenizer_encode(c->tokenizer, &piece, 1, ids, e);
}

static bool add_mark(const struct api_call *c, enum fim_part part, struct token_list *ids)
{
    token_id id = tokenizer_fim(c->tokenizer, part);
    if (id != TOKEN_NONE)
        token_list_add(ids, id);
    return id != TOKEN_NONE;
}

/* A text, which may be absent if it is not required. */
static enum err text_field(
    const json_t *body, const char *name, bool required, const json_t **out, struct err_info *e)
{
    *out = api_get(body, name);
    if (!*out && required)
        return err_invalid(e, name, "'%s' is required", name);
    return *out && !json_is_string(*out) ? api_wrong_type(name, "a string", *out, e) : OK;
}

/* Is this one of input_extra: {"filename": NAME, "text": TEXT}? */
static enum err check_file(const json_t *v, size_t i, struct err_info *e)
{
    char field[40];
    const json_t *name = json_object_get(v, "filename"), *text = json_object_get(v, "text");
    snprintf(field, sizeof field, "input_extra[%zu]", i);
    if (!json_is_object(v) || !json_is_string(text))
        return err_invalid(e, field, "'%s' must be an object with a string as its 'text'", field);
    if (name && !json_is_string(name))
        return err_invalid(e, field, "'%s' has a 'filename' that is not a string", field);
    return OK;
}

static enum err add_file(const struct api_call *c,
                         const json_t *v,
                         struct token_list *ids,
                         struct err_info *e)
{
    const json_t *name = json_object_get(v, "filename");
    enum err err;
    if (!add_mark(c, FIM_FILE, ids)) {
        err = add_literal(c, BETWEEN, ids, e);
    } else {
        struct buf line = {0};
        buf_printf(&line, "%s\n", name ? json_string_value(name) : "tmp");
        err = add_literal(c, buf_cstr(&line), ids, e);
        buf_deinit(&line);
    }
    return err ? err : add_text(c, json_object_get(v, "text"), ids, e);
}

/* The text with its gap: all of it has to fit. */
static enum err add_gap(const struct api_call *c,
                        const json_t *body,
                        struct token_list *ids,
                        struct err_info *e)
{
    const json_t *prefix, *suffix, *prompt;
    enum err err;
    if ((err = text_field(body, "input_prefix", true, &prefix, e)) ||
        (err = text_field(body, "input_suffix", true, &suffix, e)) ||
        (err = text_field(body, "prompt", false, &prompt, e)))
        return err;
    if (add_mark(c, FIM_FILE, ids) && (err = add_literal(c, THE_FILE, ids, e)))
        return err;
    add_mark(c, FIM_PREFIX, ids);
    if ((err = add_text(c, prefix, ids, e)) || (err = add_text(c, prompt, ids, e)))
        return err;
    add_mark(c, FIM_SUFFIX, ids);
    err = add_text(c, suffix, ids, e);
    add_mark(c, FIM_MIDDLE, ids);
    return err;
}

/* Files [from, n) of input_extra, of which there is room for `room` tokens; read from the last one
 * on, until one does not fit. All are checked, but none behind it encoded. */
static enum err add_files(const struct api_call *c,
                          const json_t *extra,
                          size_t room,
                          struct token_list *out,
                          struct err_info *e)
{
    size_t n = json_array_size(extra), n_kept = 0;
    struct token_list *files = mem_zalloc(n + 1, sizeof *files);
    enum err err = OK;
    bool full = false;
    for (size_t i = n; !err && i-- > 0;) {
        const json_t *file = json_array_get(extra, i);
        if ((err = check_file(file, i, e)) || full || (err = add_file(c, file, &files[i], e)))
            continue;
        full = files[i].n > room;
        if (!full) {
            room -= files[i].n;
            n_kept++;
        }
    }
    for (size_t i = n - n_kept; !err && i < n; i++)
        for (size_t k = 0; k < files[i].n; k++)
            token_list_add(out, files[i].ids[k]);
    for (size_t i = 0; i < n; i++)
        token_list_deinit(&files[i]);
    free(files);
    return err;
}

/* What is before the gap's file, into *out, in at most `room` tokens. */
static enum err add_before(const struct api_call *c,
                           const json_t *body,
                           size_t room,
                           struct token_list *out,
                           struct err_info *e)
{
    json_t *extra;
    const struct tokenizer *t = c->tokenizer;
    enum err err = api_get_array(body, "input_extra", "an array of objects", &extra, e);
    if (err)
        return err;
    if (json_array_size(extra) > MAX_EXTRA)
        return err_invalid(e, "input_extra", "'input_extra' has more than %d files", MAX_EXTRA);
    tokenizer_add_begin(t, out);
    if (tokenizer_fim(t, FIM_REPO) != TOKEN_NONE) {
        add_mark(c, FIM_REPO, out);
        err = add_literal(c, THE_REPO, out, e);
    }
    return err ? err : add_files(c, extra, room > out->n ? room - out->n : 0, out, e);
}

enum err infill_parse(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e)
{
    const struct native *s = c->state;
    struct token_list gap = {0};
    native_parse_settings(c, body, job);
    struct api_prompt *p = api_job_prompts(job, 1);
    enum err err = add_gap(c, body, &gap, e);
    if (!err) {
        size_t n_ctx = engine_n_ctx(c->engine);
        size_t answer = s->n_predict > 0 ? (size_t)s->n_predict : n_ctx / 8;
        size_t taken = gap.n + answer;
        err = add_before(c, body, taken < n_ctx ? n_ctx - taken : 0, &p->ids, e);
    }
    for (size_t i = 0; !err && i < gap.n; i++)
        token_list_add(&p->ids, gap.ids[i]);
    token_list_deinit(&gap);
    if (!err)
        native_text(c->tokenizer, p->ids.ids, p->ids.n, &p->text);
    return err;
}
