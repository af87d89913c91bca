/* POST /v1/rerank (and /v2/rerank, /rerank, /reranking): documents in the order of how well they
 * fit a query, as the model's head judges each pair. The shape of Jina and Cohere; with "texts"
 * instead of "documents" that of Text Embeddings Inference. */
#include "api/vectors.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char query_mark[] = "{query}", document_mark[] = "{document}";

/* The model's own words around a pair, where the file has them: NULL data where not. */
static enum err read_template(const struct api_call *c, struct gguf_str *out, struct err_info *e)
{
    *out = (struct gguf_str){NULL, 0};
    return gguf_get_str(engine_model(c->engine)->gguf, "tokenizer.chat_template.rerank", out, e);
}

/* Where `mark` begins in s from `at` on; s.len if nowhere. */
static size_t find_mark(struct gguf_str s, size_t at, const char *mark)
{
    const size_t n = strlen(mark);
    while (at + n <= s.len && memcmp(s.data + at, mark, n) != 0)
        at++;
    return at + n <= s.len ? at : s.len;
}

enum { MAX_PIECES = 64 };

/* The template with the texts in place of their marks; only the template's own words may hold
 * control tokens. */
static enum err encode_template(const struct tokenizer *t,
                                struct gguf_str template,
                                struct text_piece query,
                                struct text_piece document,
                                struct token_list *out,
                                struct err_info *e)
{
    struct text_piece pieces[MAX_PIECES];
    size_t n = 0;
    for (size_t at = 0; at < template.len;) {
        const size_t q = find_mark(template, at, query_mark);
        const size_t d = find_mark(template, at, document_mark);
        const size_t end = q < d ? q : d;
        if (n + 2 > MAX_PIECES)
            return err_set(e, ERR_UNSUPPORTED, "the model's template for pairs has too many marks");
        pieces[n++] = (struct text_piece){template.data + at, end - at, true};
        if (end == template.len)
            break;
        pieces[n++] = q < d ? query : document;
        at = end + (q < d ? sizeof query_mark : sizeof document_mark) - 1;
    }
    return tokenizer_encode(t, pieces, n, out, e);
}

/* [begin] query [between] document [end], as the model's flags say. */
static enum err encode_plain(struct api_call *c,
                             struct text_piece query,
                             struct text_piece document,
                             struct token_list *out,
                             struct err_info *e)
{
    const struct tokenizer *t = c->tokenizer;
    enum err err;
    tokenizer_add_begin(t, out);
    if ((err = tokenizer_encode(t, &query, 1, out, e)))
        return err;
    tokenizer_add_between(t, out);
    c->vectors->n_first = (uint32_t)out->n;
    if ((err = tokenizer_encode(t, &document, 1, out, e)))
        return err;
    tokenizer_add_end(t, out);
    return OK;
}

static struct text_piece piece_of(const json_t *s)
{
    return (struct text_piece){json_string_value(s), json_string_length(s), false};
}

/* A document is a string, or an object with its text. */
static enum err parse_document(const json_t *v,
                               const char *field,
                               struct text_piece *out,
                               struct err_info *e)
{
    const json_t *text = json_is_object(v) ? json_object_get(v, "text") : v;
    if (!text || !json_is_string(text))
        return api_wrong_type(field, "a string, or an object with a \"text\"", v, e);
    *out = piece_of(text);
    return OK;
}

static enum err parse_documents(struct api_call *c,
                                const json_t *docs,
                                const char *name,
                                const json_t *query,
                                bool keep,
                                struct api_job *job,
                                struct err_info *e)
{
    struct api_vectors *v = c->vectors;
    const uint32_t n = (uint32_t)json_array_size(docs);
    struct api_prompt *prompts = api_job_prompts(job, n);
    struct gguf_str template = {0};
    enum err err = read_template(c, &template, e);
    if (keep) {
        v->texts = mem_zalloc(n, sizeof *v->texts);
        v->n_texts = n;
    }
    for (uint32_t i = 0; i < n && !err; i++) {
        struct text_piece document = {0};
        char field[48];
        snprintf(field, sizeof field, "%s[%u]", name, i);
        if ((err = parse_document(json_array_get(docs, i), field, &document, e)))
            break;
        struct token_list *ids = &prompts[i].ids;
        err = template.data
                  ? encode_template(c->tokenizer, template, piece_of(query), document, ids, e)
                  : encode_plain(c, piece_of(query), document, ids, e);
        if (err)
            return api_not_tokenized(err, field, e);
        if (keep)
            buf_add(&v->texts[i], document.text, document.n_bytes);
    }
    return err;
}

/* Only one score a text can be put in order: the head's only one, or the first of a choice. */
static enum err check_head(const struct api_call *c, struct err_info *e)
{
    const struct model_hparams *hp = &engine_model(c->engine)->hp;
    if (hp->n_labels <= 1 || hp->label_softmax)
        return OK; /* without a head, request_create says so */
    return err_set(e,
                   ERR_INVALID,
                   "the model's head has %u labels, none of which is a relevance",
                   hp->n_labels);
}

static enum err parse(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e)
{
    struct api_vectors *v = c->vectors;
    const json_t *query = json_object_get(body, "query"),
                 *docs = json_object_get(body, "documents");
    const char *name = "documents";
    bool keep = false;
    enum err err;
    if (!docs && json_object_get(body, "texts")) {
        docs = json_object_get(body, "texts");
        name = "texts";
        v->plain = true;
    }
    if (!query || !json_is_string(query))
        return query ? api_wrong_type("query", "a string", query, e)
                     : err_invalid(e, "query", "'query' is required");
    if (!docs || !json_is_array(docs))
        return docs ? api_wrong_type(name, "an array of strings", docs, e)
                    : err_invalid(e, name, "'%s' is required", name);
    const size_t n = json_array_size(docs);
    if (n == 0 || n > API_MAX_TEXTS)
        return err_invalid(
            e, name, "%zu texts at once; from 1 to %d are allowed", n, API_MAX_TEXTS);
    int64_t top_n = (int64_t)n;
    if ((err = api_get_int(body, "top_n", 1, INT32_MAX, &top_n, e)) ||
        (err = api_get_bool(body, v->plain ? "return_text" : "return_documents", &keep, e)) ||
        (err = api_get_bool(body, "raw_scores", &v->raw, e)) || (err = check_head(c, e)))
        return err;
    v->top_n = top_n < (int64_t)n ? (uint32_t)top_n : (uint32_t)n;
    job->params.request.output = OUTPUT_SCORES;
    if ((err = parse_documents(c, docs, name, query, keep, job, e)))
        return err;
    job->params.request.n_first = v->n_first;
    return OK;
}

struct ranked {
    uint32_t index;
    double score;
};

/* Best first; equal ones as they came. */
static int compare(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

/* The head's logit, or what it says in 0..1: the logistic of one, or its share of several. */
static double score_of(const struct api_call *c, const float *x, uint32_t n)
{
    double sum = 0;
    if (c->vectors->raw)
        return x[0];
    if (!engine_model(c->engine)->hp.label_softmax || n < 2)
        return 1 / (1 + exp(-(double)x[0]));
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - x[0]);
    return 1 / sum;
}

static void put_result(const struct api_call *c, const struct ranked *r, struct buf *out)
{
    const struct api_vectors *v = c->vectors;
    buf_str(out, "{\"index\":");
    api_put_int(out, r->index);
    buf_str(out, v->plain ? ",\"score\":" : ",\"relevance_score\":");
    api_put_double(out, r->score);
    if (v->texts) {
        const struct buf *text = &v->texts[r->index];
        buf_str(out, v->plain ? ",\"text\":" : ",\"document\":{\"text\":");
        api_put_text(out, text->data, text->len);
        if (!v->plain)
            buf_char(out, '}');
    }
    if (v->plain) /* an array has no place for what is said of all */
        api_add_own_timeline(&c->choices[r->index], out);
    buf_char(out, '}');
}

static void whole(struct api_call *c, struct buf *out)
{
    const struct api_vectors *v = c->vectors;
    struct ranked *all = mem_alloc(c->n_choices * sizeof *all);
    for (uint32_t i = 0; i < c->n_choices; i++) {
        uint32_t n;
        const float *x = request_vector(c->choices[i].req, &n);
        all[i] = (struct ranked){i, score_of(c, x, n)};
    }
    qsort(all, c->n_choices, sizeof *all, compare);
    if (!v->plain) {
        buf_str(out, "{\"id\":\"");
        buf_str(out, c->id);
        buf_str(out, "\",\"object\":\"list\"");
        api_field_model(c, "model", out);
        api_put_text_usage(c, out);
        api_add_timeline(c, out);
        buf_str(out, ",\"results\":");
    }
    for (uint32_t i = 0; i < v->top_n; i++) {
        buf_char(out, i > 0 ? ',' : '[');
        put_result(c, &all[i], out);
    }
    buf_str(out, v->plain ? "]" : "]}");
    free(all);
}

static const struct api_dialect dialect = {
    .id_prefix = "rerank-", .prompt_field = "documents", .parse = parse, .whole = whole};

enum err api_rerank(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    return api_vectors_compute(c, &dialect, in, e);
}
