/* prompt_logprobs: how likely the model finds the prompt, as vLLM has it.
 *
 *      [null, {"ID": {"logprob": -1.5, "rank": 2, "decoded_token": " cat"}, ...}, ...]
 *
 * At each place the token that is there, and then the most likely ones but for it; of the first
 * token, which nothing predicts, null. Of a chat it stands beside the choices, of a completion in
 * each, and all choices of a prompt show the first one's, the only one that has it computed. */
#include "api/text.h"

static void put_one(
    const struct api_call *c, token_id id, float logprob, uint32_t rank, struct buf *out)
{
    buf_char(out, '"');
    api_put_int(out, id);
    buf_str(out, "\":{\"logprob\":");
    api_put_float(out, logprob);
    buf_str(out, ",\"rank\":");
    api_put_int(out, rank);
    buf_str(out, ",\"decoded_token\":");
    api_put_token(c->tokenizer, id, false, out);
    buf_char(out, '}');
}

static void put_place(
    const struct api_call *c, const struct request *r, uint32_t i, float logprob, struct buf *out)
{
    uint32_t n;
    const token_id own = request_prompt(r, &n)[i];
    const struct token_logprob *top = request_prompt_top(r, i);
    buf_char(out, '{');
    put_one(c, own, logprob, request_prompt_rank(r, i), out);
    for (uint32_t j = 0; j < c->n_prompt_top; j++) {
        if (top[j].id == own || top[j].id < 0)
            continue;
        buf_char(out, ',');
        put_one(c, top[j].id, top[j].logprob, j + 1, out);
    }
    buf_char(out, '}');
}

void api_put_prompt_logprobs(const struct api_choice *ch, struct buf *out)
{
    const struct api_call *c = ch->call;
    const struct request *r = c->choices[ch->index - ch->index % c->n_per_prompt].req;
    uint32_t n;
    if (!c->prompt_logprobs)
        return;
    const float *logprobs = request_prompt_logprobs(r, &n);
    buf_str(out, ",\"prompt_logprobs\":[null");
    for (uint32_t i = 1; i < n; i++) {
        buf_char(out, ',');
        put_place(c, r, i, logprobs[i], out);
    }
    buf_char(out, ']');
}

uint64_t api_n_prompt_logprobs(const struct api_call *c, const struct api_dialect *d)
{
    uint64_t n = 0;
    for (uint32_t i = 0; c->prompt_logprobs && i < c->n_choices; i++) {
        uint32_t n_prompt;
        (void)request_prompt(c->choices[i].req, &n_prompt);
        n += i == 0 || d != &api_chat ? n_prompt : 0;
    }
    return n * (1 + c->n_prompt_top);
}
