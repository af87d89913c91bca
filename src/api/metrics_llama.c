/* The part of GET /metrics in llama-server's names, which dashboards made for it ask for. Each
 * figure means what it does there; weir_... says the same more finely (metrics.c). */
#include "api/call.h"

enum kind { COUNTER, GAUGE };

struct figure {
    const char *name, *help;
    enum kind kind;
    double value;
};

static void put(const struct figure *f, struct buf *out)
{
    buf_printf(out,
               "# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\nllamacpp:%s ",
               f->name,
               f->help,
               f->name,
               f->kind == GAUGE ? "gauge" : "counter",
               f->name);
    api_put_figure(out, f->value);
    buf_char(out, '\n');
}

static double per(double n, double of)
{
    return of > 0 ? n / of : 0;
}

void api_metrics_llama(const struct engine_stats *s, struct buf *out)
{
    const double later = (double)s->itl.count; /* tokens but the first of each answer */
    const struct figure figures[] = {
        {"prompt_tokens_total", "Prompt tokens computed.", COUNTER, (double)s->computed_tokens},
        {"prompt_tokens_cached_total",
         "Prompt tokens found computed.",
         COUNTER,
         (double)s->cached_tokens},
        {"prompt_seconds_total",
         "Time from the first step to the first token, of all requests.",
         COUNTER,
         s->prefill_time.sum},
        {"tokens_predicted_total", "Tokens generated.", COUNTER, (double)s->output_tokens},
        {"tokens_predicted_seconds_total",
         "Time from the first token to the last, of all requests that ended.",
         COUNTER,
         s->decode_time.sum},
        {"n_decode_total", "Steps run.", COUNTER, (double)s->steps},
        {"n_tokens_max",
         "Most tokens that a request had, prompt and answer.",
         COUNTER,
         (double)s->most_tokens},
        {"spec_decode_num_draft_tokens_total", "Tokens drafted.", COUNTER, (double)s->draft_tokens},
        {"spec_decode_num_accepted_tokens_total",
         "Of them, accepted.",
         COUNTER,
         (double)s->draft_tokens_right},
        {"spec_decode_num_drafts_total", "Drafts.", COUNTER, (double)s->drafts},
        {"prompt_tokens_seconds",
         "Prompt tokens computed in a second, by one request.",
         GAUGE,
         per((double)s->computed_tokens, s->prefill_time.sum)},
        {"predicted_tokens_seconds",
         "Tokens generated in a second, by one request.",
         GAUGE,
         per(later, s->itl.sum)},
        {"requests_processing", "Sequences admitted.", GAUGE, s->running},
        {"requests_deferred", "Requests in the queue.", GAUGE, s->waiting},
        {"n_busy_slots_per_decode",
         "Sequences in a step, on average.",
         GAUGE,
         per(s->batch_seqs.sum, (double)s->batch_seqs.count)},
    };
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        put(&figures[i], out);
}
