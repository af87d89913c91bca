/* Golden models with some bytes changed: what is absurd or missing is refused by its name, what
 * files may go without is not. */
#include "golden_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A copy of the file in memory with one occurrence of `from` overwritten by `to`. */
static enum err load_patched(
    const char *path, const char *from, const char *to, size_t n, struct err_info *e)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(size);
    assert_int_equal(fread(data, 1, size, f), size);
    fclose(f);
    char *at = memmem(data, size, from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, n);
    struct gguf *g;
    struct model *m = NULL;
    enum err err = gguf_open_memory(data, size, &g, e);
    if (!err)
        err = model_from_gguf(g, "patched", &m, e);
    model_destroy(m);
    free(data);
    return err;
}

/* The file with the 4 bytes of key's value (an integer or a float) replaced; the key's name stands
 * before its kind and its value. */
static enum err load_with(const char *path, const char *key, const void *value, struct err_info *e)
{
    char text[128];
    const size_t n = strlen(key);
    FILE *f = fopen(path, "rb");
    char head[8192];
    assert_non_null(f);
    assert_true(fread(head, 1, sizeof head, f) > n);
    fclose(f);
    const char *at = memmem(head, sizeof head, key, n);
    assert_non_null(at);
    memcpy(text, at, n + 4);
    memcpy(text + n + 4, value, 4);
    return load_patched(path, key, text, n + 8, e);
}

/* What is absurd is refused by the name of its key. */
static void test_bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *file, *key;
        uint32_t value;
    } integers[] = {
        {VARIANTS "mixtral.f32.gguf", "llama.expert_count", 0xffffffff},
        {VARIANTS "mixtral.f32.gguf", "llama.expert_used_count", 5},
        {VARIANTS "mixtral.f32.gguf", "llama.expert_used_count", 0},
        {VARIANTS "gpt-oss.f32.gguf", "gpt-oss.expert_count", 0},
        {VARIANTS "gpt-oss.f32.gguf", "gpt-oss.expert_feed_forward_length", 1u << 31},
        {VARIANTS "gpt-oss.f32.gguf", "gpt-oss.attention.value_length", 24},
        {VARIANTS "qwen2moe.f32.gguf", "qwen2moe.expert_shared_feed_forward_length", 1u << 30},
        {VARIANTS "phi3-long.f32.gguf", "phi3.rope.dimension_count", 11},
        {VARIANTS "phi3-long.f32.gguf", "phi3.rope.scaling.original_context_length", 0},
        {FAMILIES "deepseek.f32.gguf", "deepseek.expert_shared_count", 1025},
        {FAMILIES "deepseek.f32.gguf", "deepseek.expert_shared_count", 1u << 31},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.kv_lora_rank", 0},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.kv_lora_rank", 1u << 16},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.q_lora_rank", UINT32_MAX},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.key_length_mla", 8},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.value_length_mla", 0},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.rope.dimension_count", 7},
        {FAMILIES "deepseek2-lite.f32.gguf", "deepseek2.attention.key_length", 8},
        {FAMILIES "deepseek2-lite.f32.gguf", "deepseek2.attention.value_length", 1u << 31},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_group_count", 5},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_group_count", 13},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_group_used_count", 0},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_group_used_count", 5},
        {FAMILIES "bailingmoe2.f32.gguf", "bailingmoe2.expert_group_count", UINT32_MAX},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_gating_func", 3}, /* and a bias */
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.expert_gating_func", 4},
        {FAMILIES "deepseek2-v3.f32.gguf", "deepseek2.attention.temperature_length", 0},
        {FAMILIES "glm4moe.f32.gguf", "glm4moe.nextn_predict_layers", 3},
        {FAMILIES "glm4moe.f32.gguf", "glm4moe.nextn_predict_layers", UINT32_MAX},
        {FAMILIES "minimax-m3.f32.gguf", "minimax-m3.attention.indexer.top_k", 0},
        {FAMILIES "minimax-m3.f32.gguf", "minimax-m3.attention.indexer.block_size", 0},
        {FAMILIES "minimax-m3.f32.gguf", "minimax-m3.attention.indexer.block_size", UINT32_MAX},
        {FAMILIES "arcee.f32.gguf", "arcee.attention.head_count", 0},
        {FAMILIES "nanbeige.f32.gguf", "nanbeige.num_loops", 0},
        {FAMILIES "nanbeige.f32.gguf", "nanbeige.num_loops", 513}, /* of 2 layers */
        {FAMILIES "nanbeige.f32.gguf", "nanbeige.num_loops", UINT32_MAX},
    };
    static const struct {
        const char *file, *key;
        float value;
    } floats[] = {
        {VARIANTS "gemma2.f32.gguf", "gemma2.attn_logit_softcapping", -3.0f},
        {VARIANTS "gemma2.f32.gguf", "gemma2.final_logit_softcapping", NAN},
        {VARIANTS "llama-yarn.f32.gguf", "llama.rope.scaling.factor", -1.0f},
        {VARIANTS "llama-linear.f32.gguf", "llama.rope.scaling.factor", INFINITY},
        {VARIANTS "phi3-long.f32.gguf", "phi3.rope.scaling.attn_factor", 0.0f},
        {VARIANTS "granitemoe.f32.gguf", "granitemoe.residual_scale", INFINITY},
        {VARIANTS "granitemoe.f32.gguf", "granitemoe.logit_scale", 1e-40f}, /* divides */
        {FAMILIES "minicpm.f32.gguf", "minicpm.embedding_scale", NAN},
        {FAMILIES "mistral3.f32.gguf", "mistral3.attention.temperature_scale", NAN},
        {FAMILIES "mistral3.f32.gguf", "mistral3.attention.temperature_scale", -1.0f},
        {FAMILIES "mistral3.f32.gguf", "mistral3.rope.scaling.yarn_log_multiplier", -1.0f},
        {FAMILIES "deepseek2-lite.f32.gguf",
         "deepseek2.rope.scaling.yarn_log_multiplier",
         INFINITY},
        {FAMILIES "command-r.f32.gguf", "command-r.logit_scale", -INFINITY},
        {FAMILIES "gpt2.f32.gguf", "gpt2.attention.layer_norm_epsilon", 2.0f},
        {FAMILIES "phimoe.f32.gguf", "phimoe.attention.layer_norm_rms_epsilon", NAN},
        {FAMILIES "hunyuan_vl.f32.gguf", "hunyuan_vl.rope.scaling.alpha", -1.0f},
        {FAMILIES "hunyuan_vl.f32.gguf", "hunyuan_vl.rope.scaling.alpha", NAN},
        {FAMILIES "hunyuan_vl.f32.gguf",
         "hunyuan_vl.rope.scaling.alpha",
         1e-20f}, /* base below 1 */
        {FAMILIES "muse-glimmer.f32.gguf", "muse-glimmer.logit_scale", INFINITY},
        {FAMILIES "talkie.f32.gguf", "talkie.logit_scale", NAN},
        {FAMILIES "grok-2.f32.gguf", "grok.attention.output_scale", NAN},
        {FAMILIES "grok-2.f32.gguf", "grok.embedding_scale", INFINITY},
        {FAMILIES "grok-2.f32.gguf", "grok.logit_scale", NAN},
        {FAMILIES "grok-2.f32.gguf", "grok.attn_logit_softcapping", -1.0f},
        {FAMILIES "grok-2.f32.gguf", "grok.final_logit_softcapping", INFINITY},
        {RECURRENT "bailingmoe3.f32.gguf", "bailingmoe3.kda.gate_lower_bound", 0.0f},
        {RECURRENT "bailingmoe3.f32.gguf", "bailingmoe3.kda.gate_lower_bound", 1.0f},
        {RECURRENT "bailingmoe3.f32.gguf", "bailingmoe3.kda.gate_lower_bound", NAN},
        {RECURRENT "kimi-k3.f32.gguf", "kimi-k3.kda.gate_lower_bound", 1.0f},
        {RECURRENT "kimi-k3.f32.gguf", "kimi-k3.kda.gate_lower_bound", NAN},
        {RECURRENT "kimi-k3.f32.gguf", "kimi-k3.activation.situ_beta", 0.0f},
        {RECURRENT "kimi-k3.f32.gguf", "kimi-k3.activation.situ_beta", INFINITY},
        {RECURRENT "kimi-k3.f32.gguf", "kimi-k3.activation.situ_linear_beta", NAN},
        {RECURRENT "minimax-01.f32.gguf", "minimax-01.residual_scale", 0.0f},
        {RECURRENT "minimax-01.f32.gguf", "minimax-01.residual_scale", INFINITY},
        {RECURRENT "minimax-01.f32.gguf", "minimax-01.residual_scale", NAN},
    };
    struct err_info e;
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        if (load_with(integers[i].file, integers[i].key, &integers[i].value, &e) == OK)
            fail_msg("%s = %u was taken", integers[i].key, integers[i].value);
        if (!strstr(e.text, strchr(integers[i].key, '.') + 1))
            fail_msg("%s = %u: '%s'", integers[i].key, integers[i].value, e.text);
    }
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        if (load_with(floats[i].file, floats[i].key, &floats[i].value, &e) == OK)
            fail_msg("%s = %g was taken", floats[i].key, (double)floats[i].value);
        if (!strstr(e.text, strchr(floats[i].key, '.') + 1))
            fail_msg("%s = %g: '%s'", floats[i].key, (double)floats[i].value, e.text);
    }
    const uint32_t bytes = GGUF_U8; /* of an array: what its elements are, else bools */
    assert_int_equal(load_with(FAMILIES "exaone4-windows.f32.gguf",
                               "exaone4.attention.sliding_window_pattern",
                               &bytes,
                               &e),
                     OK);
    const uint32_t window = 0; /* none: fine */
    assert_int_equal(
        load_with(VARIANTS "mistral.f32.gguf", "llama.attention.sliding_window", &window, &e), OK);
}

/* Encoders without a tensor that they need, or with keys whose values cannot be. */
static void test_bad_encoders(void **state)
{
    (void)state;
    struct err_info e = {0};
    assert_int_equal(load_patched(BERT, "position_embd", "position_embx", 13, &e), ERR_FORMAT);
    assert_int_equal(load_patched(BERT, "token_types", "token_typex", 11, &e), ERR_UNSUPPORTED);
    assert_int_equal(load_patched(BERT, "token_embd_norm.b", "token_embd_norm.x", 17, &e),
                     ERR_FORMAT);
    assert_int_equal(
        load_patched(BERT, "blk.1.layer_output_norm.b", "blk.1.layer_output_norm.c", 25, &e),
        ERR_FORMAT);
    assert_int_equal(load_patched(BERT_RANK, "cls.output.w", "cls.output.x", 12, &e),
                     ERR_UNSUPPORTED);
    const uint32_t pooling = 5, positions = 97;
    assert_int_equal(load_with(BERT, "bert.pooling_type", &pooling, &e), ERR_FORMAT);
    assert_int_equal(load_with(BERT, "bert.context_length", &positions, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "position_embd"));
}

/* Keys that files may go without, and what stands in for them: half of feed_forward_length for each
 * of two experts, and the context, in which a temperature begins to rise. */
static void test_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *path, *from, *to;
    } cases[] = {
        {RECURRENT "qwen35moe.f32.gguf",
         "qwen35moe.expert_feed_forward_length",
         "qwen35moe.expert_feed_forward_xxxxxx"},
        {FAMILIES "mistral3.f32.gguf",
         "mistral3.rope.scaling.original_context_length",
         "mistral3.rope.scaling.original_context_xxxxxx"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err_info e = {0};
        const enum err err =
            load_patched(cases[i].path, cases[i].from, cases[i].to, strlen(cases[i].to), &e);
        if (err)
            fail_msg("%s: %s", cases[i].path, e.text);
    }
}

/* What only some layers of an architecture may have, or all must. */
static void test_second_norms(void **state)
{
    (void)state;
    static const struct {
        const char *file, *from, *to;
        enum err err;
        const char *words;
    } cases[] = {
        {"gptneox", "blk.1.ffn_norm.w", "blk.1.ffn_xxxx.w", ERR_FORMAT, "ffn_norm.weight is miss"},
        {"gptneox", "blk.1.ffn_norm.b", "blk.1.ffn_xxxx.b", ERR_FORMAT, "ffn_norm.bias is miss"},
        {"falcon-large", "blk.0.attn_norm_2.w", "blk.0.attn_norm_3.w", ERR_UNSUPPORTED, "norm_3"},
        {"falcon", "blk.0.attn_norm.w", "blk.0.attn_norn.w", ERR_FORMAT, "attn_norm.weight is"},
        {"stablelm", "blk.0.ffn_norm.w", "blk.0.ffn_morm.w", ERR_UNSUPPORTED, "no place"},
        {"smallthinker",
         "blk.1.ffn_gate_inp.w",
         "blk.1.ffn_gate_imp.w",
         ERR_FORMAT,
         "blk.1.ffn_gate.weight is missing"},
        {"phi2", "output.bias", "output.bia2", ERR_FORMAT, "output.bias is missing"},
        {"openelm", "blk.2.attn_qkv.w", "blk.2.attn_xkv.w", ERR_FORMAT, "blk.2.attn_q.weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        struct err_info e;
        snprintf(path, sizeof path, FAMILIES "%s.f32.gguf", cases[i].file);
        enum err err = load_patched(path, cases[i].from, cases[i].to, strlen(cases[i].to), &e);
        if (err != cases[i].err || !strstr(e.text, cases[i].words))
            fail_msg("%s, %s: %d: %s", cases[i].file, cases[i].from, err, e.text);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct err_info e;
    const char *path = ARCHS "llama3.f32.gguf";
    assert_int_equal(load_patched(path, "blk.1.attn_q.weight", "blk.1.attn_x", 12, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "blk.1.attn_q.weight"));
    /* a tensor that nothing uses would silently change the model */
    assert_int_equal(load_patched(path, "rope_freqs", "rope_other", 10, &e), ERR_UNSUPPORTED);
    assert_int_equal(load_patched(path, "llama.block_count", "llama.block_cOunt", 17, &e),
                     ERR_FORMAT);
    assert_non_null(strstr(e.text, "block_count"));
    assert_int_equal(load_patched(path, "llama", "rwkv5", 5, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "rwkv5"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_bad_encoders),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_second_norms),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
