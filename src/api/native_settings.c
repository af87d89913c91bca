/* "generation_settings" of llama-server's /completion: what is used, in its names; and its samplers
 * that are never on, as such. */
#include "api/native.h"

#include "engine/stop.h"

#include <math.h>

static void put_stops(const struct request_params *p, struct buf *out)
{
    buf_str(out, ",\"stop\":[");
    for (uint32_t i = 0; i < stop_texts_count(p->stops); i++) {
        const struct gguf_str text = stop_texts_get(p->stops, i);
        if (i > 0)
            buf_char(out, ',');
        api_put_text(out, text.data, text.len);
    }
    buf_str(out, "],\"logit_bias\":[");
    for (uint32_t i = 0; i < p->sample.n_bias; i++) {
        buf_printf(out, "%s{\"token\":%d,\"bias\":", i ? "," : "", p->sample.bias[i].id);
        if (isfinite(p->sample.bias[i].bias))
            api_put_float(out, p->sample.bias[i].bias);
        else
            buf_str(out, "null");
        buf_char(out, '}');
    }
    buf_char(out, ']');
}

static float number_of(const json_t *o, const char *name, float otherwise)
{
    const json_t *v = json_object_get(o, name);
    return v ? (float)json_number_value(v) : otherwise;
}

/* The operator's, over llama-server's. */
static void put_defaults(const struct api *a, struct sample_params *s)
{
    const json_t *seed = json_object_get(a->defaults, "seed");
    const json_t *top_k = json_object_get(a->defaults, "top_k");
    const json_t *last_n = json_object_get(a->defaults, "repeat_last_n");
    s->temperature = number_of(a->defaults, "temperature", s->temperature);
    s->top_p = number_of(a->defaults, "top_p", s->top_p);
    s->min_p = number_of(a->defaults, "min_p", s->min_p);
    s->repetition_penalty = number_of(a->defaults, "repeat_penalty", s->repetition_penalty);
    if (seed)
        s->seed = (uint64_t)json_integer_value(seed);
    if (top_k)
        s->top_k = (int32_t)json_integer_value(top_k);
    if (last_n)
        s->penalty_window = (uint32_t)json_integer_value(last_n); /* -1 is all */
}

void native_put_settings(const struct api_call *c,
                         const struct native *s,
                         const struct api_job *job,
                         struct buf *out)
{
    struct request_params p = request_params_default();
    if (job) {
        p = job->params.request;
    } else {
        p.sample.temperature = 0.8f;
        p.sample.top_k = 40;
        p.sample.top_p = 0.95f;
        p.sample.min_p = 0.05f;
        p.sample.penalty_window = 64;
        p.sample.seed = NATIVE_RANDOM_SEED;
        put_defaults(c->api, &p.sample);
    }
    buf_char(out, '{');
    api_field_int(out, "n_ctx", engine_n_ctx(c->engine));
    api_field_model(c, "model", out);
    api_field_int(out, "seed", (int64_t)p.sample.seed);
    api_field_real(out, "temperature", (double)p.sample.temperature);
    api_field_real(out, "top_k", p.sample.top_k);
    api_field_real(out, "top_p", (double)p.sample.top_p);
    api_field_real(out, "min_p", (double)p.sample.min_p);
    uint32_t window = p.sample.penalty_window;
    api_field_real(out, "repeat_last_n", window == 0 || window == UINT32_MAX ? -1 : (double)window);
    api_field_real(out, "repeat_penalty", (double)p.sample.repetition_penalty);
    api_field_real(out, "presence_penalty", (double)p.sample.presence_penalty);
    api_field_real(out, "frequency_penalty", (double)p.sample.frequency_penalty);
    buf_str(out,
            ",\"dynatemp_range\":0,\"dynatemp_exponent\":1,\"top_n_sigma\":-1,"
            "\"xtc_probability\":0,\"xtc_threshold\":0.1,\"typical_p\":1,\"dry_multiplier\":0,"
            "\"dry_base\":1.75,\"dry_allowed_length\":2,\"dry_penalty_last_n\":-1,"
            "\"dry_sequence_breakers\":[],\"mirostat\":0,\"mirostat_tau\":5,\"mirostat_eta\":0.1,"
            "\"adaptive_target\":-1,\"adaptive_decay\":0.9,\"min_keep\":0,\"n_discard\":0");
    put_stops(&p, out);
    double most = s ? (double)s->n_predict : job && p.max_tokens > 0 ? (double)p.max_tokens : -1.0;
    most = p.no_output ? 0.0 : most;
    api_field_real(out, "max_tokens", most);
    api_field_real(out, "n_predict", most);
    api_field_real(out, "n_keep", -1);
    api_field_real(out, "n_probs", c->n_top);
    api_field_real(out, "n_indent", p.min_indent);
    api_field_real(out, "t_max_predict_ms", p.max_line_ms ? (double)p.max_line_ms : -1);
    api_field_bool(out, "ignore_eos", p.ignore_eos);
    api_field_bool(out, "stream", job && job->params.stream);
    api_field_bool(out, "timings_per_token", c->timings_per_token);
    api_field_bool(out, "post_sampling_probs", p.sampled_logprobs);
    buf_printf(out,
               ",\"samplers\":[\"penalties\",%s\"top_k\",\"top_p\",\"min_p\"%s],\"lora\":[]}",
               p.sample.temperature_last || !job ? "" : "\"temperature\",",
               p.sample.temperature_last || !job ? ",\"temperature\"" : "");
}
