/* What the prefix index costs a block, over a thousand to a million cached blocks.
 *
 *      kv_index [TOKENS_A_PROMPT]        default 1,000; 1,000,000 blocks take about 300 MB
 *
 * Prompts of random tokens fill the memory; then all of them are looked up in random order (find,
 * take a reference, give it back), then as many others take their place, which evicts each. A line
 * a size: nanoseconds a block, host bytes a block beside tokens and KV, and the time to look up one
 * prompt of 16,000 tokens. */
#include "kv/kv.h"

#include "base/clock.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS 16
#define LONG_PROMPT 16000

static uint64_t rng = 88172645463325252u;

/* Marsaglia's xorshift64. */
static uint64_t next_random(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    return rng ^= rng << 17;
}

static void copy_block(void *ctx, struct kv_place from, struct kv_place to)
{
    (void)ctx;
    (void)from;
    (void)to;
}

static void must(enum err err)
{
    if (err != OK) {
        fprintf(stderr, "kv_index: error %d\n", err);
        exit(1);
    }
}

static const struct kv_key nobody;

static void draw(int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(next_random() % 150000);
}

/* Compute n tokens that nobody has, and leave them cached. */
static void fill(struct kv *kv, struct kv_table *t, const int32_t *tokens, uint32_t n)
{
    kv_table_begin(t, tokens, &nobody, true);
    kv_attach(kv, t, 0, n);
    must(kv_table_grow(kv, t, n, NULL));
    kv_publish(kv, t, n, false);
    kv_table_release(kv, t, n);
}

static uint32_t find(struct kv *kv, struct kv_table *t, const int32_t *tokens, uint32_t n)
{
    kv_table_begin(t, tokens, &nobody, true);
    uint32_t found = kv_attach(kv, t, 0, n);
    kv_table_release(kv, t, found);
    return found;
}

static double ns(uint64_t since_us, uint64_t n_blocks)
{
    return (double)(clock_us() - since_us) * 1e3 / (double)n_blocks;
}

static double long_lookup_us(struct kv *kv, struct kv_table *t, int32_t *tokens)
{
    draw(tokens, LONG_PROMPT);
    fill(kv, t, tokens, LONG_PROMPT);
    uint64_t start = clock_us();
    uint32_t found = 0;
    for (int i = 0; i < 20; i++)
        found += find(kv, t, tokens, LONG_PROMPT);
    if (found != 20 * (LONG_PROMPT - BLOCK_TOKENS))
        exit(1);
    return (double)(clock_us() - start) / 20;
}

static void measure(uint32_t n_blocks, uint32_t n_tokens)
{
    uint32_t per = n_tokens / BLOCK_TOKENS, n_prompts = n_blocks / per;
    struct kv *kv;
    struct kv_table t;
    struct kv_config cfg = {
        .n_blocks = n_blocks, .block_tokens = BLOCK_TOKENS, .mover = {.copy = copy_block}};
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    must(kv_create(&cfg, &kv, NULL));
    size_t bytes = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    int32_t *tokens = malloc((size_t)n_prompts * n_tokens * sizeof *tokens);
    int32_t *others = malloc((size_t)n_prompts * n_tokens * sizeof *others);
    int32_t long_prompt[LONG_PROMPT];
    must(kv_table_init(kv, &t, LONG_PROMPT / BLOCK_TOKENS, NULL));
    if (!tokens || !others)
        exit(1);
    draw(tokens, n_prompts * n_tokens);
    draw(others, n_prompts * n_tokens);

    uint64_t n = (uint64_t)n_prompts * per, start = clock_us();
    for (uint32_t i = 0; i < n_prompts; i++)
        fill(kv, &t, tokens + (size_t)i * n_tokens, n_tokens);
    double insert = ns(start, n);
    start = clock_us();
    for (uint32_t i = 0; i < n_prompts; i++)
        find(kv, &t, tokens + (size_t)(next_random() % n_prompts) * n_tokens, n_tokens);
    double lookup = ns(start, n);
    start = clock_us();
    for (uint32_t i = 0; i < n_prompts; i++)
        fill(kv, &t, others + (size_t)i * n_tokens, n_tokens);
    double evict = ns(start, n);
    printf("%8u blocks: insert %4.0f ns, look up %4.0f ns, evict and insert %4.0f ns a block; "
           "%3.0f bytes a block",
           n_blocks,
           insert,
           lookup,
           evict,
           (double)bytes / n_blocks - BLOCK_TOKENS * sizeof(int32_t));
    if (n_blocks >= LONG_PROMPT / BLOCK_TOKENS)
        printf("; 16,000 tokens found in %3.0f us", long_lookup_us(kv, &t, long_prompt));
    printf("\n");
    kv_table_deinit(&t);
    kv_destroy(kv);
    free(tokens);
    free(others);
}

int main(int argc, char **argv)
{
    uint32_t n_tokens = argc > 1 ? (uint32_t)atoi(argv[1]) : 1000;
    n_tokens -= n_tokens % BLOCK_TOKENS;
    if (n_tokens == 0 || n_tokens > LONG_PROMPT) {
        fprintf(
            stderr, "usage: kv_index [TOKENS_A_PROMPT]   (%d..%d)\n", BLOCK_TOKENS, LONG_PROMPT);
        return 2;
    }
    for (uint32_t n = 1000; n <= 1000000; n *= 10)
        measure(n, n_tokens);
    return 0;
}
