/* POST /v1/embeddings, and llama-server's /embedding and /embeddings: a vector of each text. */
#include "api/native.h"
#include "api/vectors.h"

#include "base/mem.h"

#include <math.h>
#include <openssl/evp.h>
#include <string.h>

/* Norms that a client may ask for, as llama-server numbers them. */
enum { NORM_NONE = -1, NORM_INT16 = 0, NORM_EUCLIDEAN = 2, NORM_MOST = 64 };

/* A text, with what the model wants around it. Its control tokens are plain text. */
static enum err text_input(struct api_call *c,
                           const json_t *v,
                           const char *field,
                           struct api_prompt *p,
                           struct err_info *e)
{
    const struct tokenizer *t = c->tokenizer;
    struct text_piece piece = {.text = json_string_value(v), .n_bytes = json_string_length(v)};
    tokenizer_add_begin(t, &p->ids);
    const enum err err = tokenizer_encode(t, &piece, 1, &p->ids, e);
    if (err)
        return api_not_tokenized(err, field, e);
    tokenizer_add_end(t, &p->ids);
    if (p->ids.n == 0) /* and none around it, so that there is nothing to compute */
        return err_invalid(e, field, "'%s' is empty", field);
    return OK;
}

/* Ids as they are, and texts between them with nothing around. */
static enum err mixed_input(struct api_call *c,
                            const json_t *v,
                            const char *field,
                            struct api_prompt *p,
                            struct err_info *e)
{
    enum err err = native_encode_list(c->tokenizer, v, field, false, false, &p->ids, e);
    if (!err && p->ids.n == 0)
        err = err_invalid(e, field, "'%s' holds no token", field);
    return err;
}

static bool has_text(const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++)
        if (json_is_string(json_array_get(v, i)))
            return true;
    return false;
}

/* {"prompt_string": TEXT}, or {"content": [{"type": "text", "text": TEXT}, ...]}, joined. */
static enum err object_input(struct api_call *c,
                             const json_t *v,
                             const char *field,
                             struct api_prompt *p,
                             struct err_info *e)
{
    static const struct api_refused media[] = {{"multimodal_data", NEUTRAL_EMPTY, 0}};
    const json_t *text = json_object_get(v, "prompt_string");
    const json_t *parts = json_object_get(v, "content");
    enum err err = api_refuse_fields(v, media, 1, e);
    if (err)
        return err;
    if (json_is_string(text))
        return text_input(c, text, field, p, e);
    if (!json_is_array(parts))
        return err_invalid(e,
                           field,
                           "'%s' is an object with neither a 'prompt_string' nor an array "
                           "'content'",
                           field);
    struct buf joined = {.may_fail = true};
    err = api_join_parts(parts, field, "", 0, &joined, e);
    if (!err) {
        json_t *whole = api_json_string(&joined);
        err = whole ? text_input(c, whole, field, p, e) : err_set(e, ERR_NOMEM, "no memory");
        json_decref(whole);
    }
    buf_deinit(&joined);
    return err;
}

/* A text, an object with one, or an array of ids, taken as it is. */
static enum err one_input(struct api_call *c,
                          const json_t *v,
                          const char *field,
                          struct api_prompt *p,
                          struct err_info *e)
{
    if (json_is_string(v))
        return text_input(c, v, field, p, e);
    if (json_is_object(v))
        return object_input(c, v, field, p, e);
    if (has_text(v))
        return mixed_input(c, v, field, p, e);
    if (json_is_array(v))
        return api_ids_prompt(c, v, field, p, e);
    return api_wrong_type(field, "a string or an array of token ids", v, e);
}

static bool has_number(const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++)
        if (json_is_number(json_array_get(v, i)))
            return true;
    return false;
}

/* One text or several: an array with a number in it is one of ids. */
static enum err parse_input(
    struct api_call *c, const json_t *v, const char *name, struct api_job *job, struct err_info *e)
{
    const size_t n = json_array_size(v); /* 0 of what is no array */
    if (!json_is_array(v) || has_number(v))
        return one_input(c, v, name, api_job_prompts(job, 1), e);
    if (n == 0)
        return err_invalid(e, name, "'%s' is empty", name);
    if (n > API_MAX_TEXTS)
        return err_invalid(e, name, "%zu texts at once; at most %d are allowed", n, API_MAX_TEXTS);
    return api_read_prompts(c, v, name, one_input, job, e);
}

static enum err parse_format(const json_t *body, struct api_vectors *v, struct err_info *e)
{
    struct gguf_str format = {"float", 5};
    enum err err = api_get_str(body, "encoding_format", &format, e);
    if (err)
        return err;
    v->base64 = format.len == 6 && memcmp(format.data, "base64", 6) == 0;
    if (!v->base64 && !(format.len == 5 && memcmp(format.data, "float", 5) == 0))
        return err_invalid(e,
                           "encoding_format",
                           "'encoding_format' must be float or base64, not '%.40s'",
                           format.data);
    return OK;
}

static enum err parse(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e)
{
    struct api_vectors *v = c->vectors;
    const json_t *input = api_get(body, "input");
    const json_t *content = api_get(body, "content");
    const char *name = "input";
    int64_t n_dims = engine_model(c->engine)->hp.n_embd;
    enum err err;
    v->openai = c->shape == API_OPENAI;
    v->each = engine_pooling(c->engine) == POOLING_NONE;
    if (v->openai && v->each)
        return err_set(e,
                       ERR_INVALID,
                       "this route gives one vector of a text, but the server runs with --pooling "
                       "none, which makes one of each token: /embeddings gives those");
    if (!v->openai && input && content)
        return err_invalid(e, "content", "'content' cannot stand beside 'input'");
    if (!input) { /* llama-server's word for it, and its shape */
        input = content;
        name = "content";
        v->openai = false;
    }
    if (!input)
        return err_invalid(e, "input", "'input' is required");
    v->norm = v->each ? NORM_NONE : NORM_EUCLIDEAN;
    job->params.request.output = OUTPUT_EMBEDDING;
    if ((err = parse_format(body, v, e)) ||
        (err = api_get_int(body, "dimensions", 1, n_dims, &n_dims, e)) ||
        (err = api_get_int(body, "embd_normalize", NORM_NONE, NORM_MOST, &v->norm, e)))
        return err;
    v->n_dims = (uint32_t)n_dims;
    return parse_input(c, input, name, job, e);
}

/* What x is divided by. In double, in order; nothing else than the vector decides it. */
static double norm_of(const float *x, uint32_t n, int64_t norm)
{
    double sum = 0;
    if (norm == NORM_NONE)
        return 1;
    for (uint32_t i = 0; i < n; i++) {
        const double size = fabs((double)x[i]);
        if (norm == NORM_INT16)
            sum = size > sum ? size : sum;
        else
            sum += norm == NORM_EUCLIDEAN ? size * size : pow(size, (double)norm);
    }
    if (norm == NORM_INT16)
        return sum / 32760.0;
    return norm == NORM_EUCLIDEAN ? sqrt(sum) : pow(sum, 1.0 / (double)norm);
}

static void put_base64(const float *x, uint32_t n, struct buf *out)
{
    const size_t n_bytes = n * sizeof *x; /* little-endian, as all that Weir runs on */
    buf_char(out, '"');
    if (!buf_reserve(out, (n_bytes + 2) / 3 * 4 + 1))
        return;
    out->len += (size_t)EVP_EncodeBlock(
        (unsigned char *)out->data + out->len, (const unsigned char *)x, (int)n_bytes);
    buf_char(out, '"');
}

/* The first n_dims values, brought to the norm: of a model that was trained for it, the beginning
 * of a vector is one of a shorter kind. */
static void put_vector(const struct api_vectors *v, const float *x, float *scaled, struct buf *out)
{
    const double norm = norm_of(x, v->n_dims, v->norm);
    for (uint32_t i = 0; i < v->n_dims; i++)
        scaled[i] = norm > 0 ? (float)(x[i] / norm) : 0.0f;
    if (v->base64) {
        put_base64(scaled, v->n_dims, out);
        return;
    }
    buf_char(out, '[');
    for (uint32_t i = 0; i < v->n_dims; i++) {
        if (i > 0)
            buf_char(out, ',');
        api_put_value(out, scaled[i]);
    }
    buf_char(out, ']');
}

static void put_texts(struct api_call *c, struct buf *out)
{
    const struct api_vectors *v = c->vectors;
    float *scaled = mem_alloc((v->n_dims + 1) * sizeof *scaled);
    for (uint32_t i = 0; i < c->n_choices; i++) {
        uint32_t n;
        const float *x = request_vector(c->choices[i].req, &n);
        const uint32_t n_vectors = request_n_vectors(c->choices[i].req);
        buf_str(out, i > 0 ? ",{" : "{");
        if (v->openai)
            buf_str(out, "\"object\":\"embedding\",");
        buf_str(out, "\"index\":");
        api_put_int(out, i);
        buf_str(out, v->openai ? ",\"embedding\":" : ",\"embedding\":[");
        for (uint32_t k = 0; k < n_vectors; k++) {
            buf_str(out, k > 0 ? "," : "");
            put_vector(v, x + (size_t)k * n, scaled, out);
        }
        buf_str(out, v->openai ? "" : "]");
        if (!v->openai) /* an array has no place for what is said of all */
            api_add_own_timeline(&c->choices[i], out);
        buf_char(out, '}');
    }
    free(scaled);
}

static void whole(struct api_call *c, struct buf *out)
{
    buf_str(out, c->vectors->openai ? "{\"object\":\"list\",\"data\":[" : "[");
    put_texts(c, out);
    buf_char(out, ']');
    if (!c->vectors->openai)
        return;
    api_field_model(c, "model", out);
    api_put_text_usage(c, out);
    api_add_timeline(c, out);
    buf_char(out, '}');
}

static const struct api_dialect dialect = {
    .id_prefix = "embd-", .prompt_field = "input", .parse = parse, .whole = whole};

enum err api_embeddings(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    return api_vectors_compute(c, &dialect, in, e);
}
