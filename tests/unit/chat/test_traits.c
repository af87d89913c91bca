/* What templates want and lose, and how calls and thoughts look in their replies: found out, or
 * set. */
#include "chat/chat.h"
#include "chat/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where it is, else the test is skipped. */
static struct chat_template *read_released(const char *file)
{
    static char source[1 << 18];
    const char *root = getenv("WEIR_FIXTURES");
    char path[500];
    snprintf(path,
             sizeof path,
             "%s/templates/%s",
             root ? root : TEST_DATA "/../../../shared/fixtures",
             file);
    FILE *f = fopen(path, "rb");
    if (!f) {
        print_message("no %s: released templates are not tested here\n", path);
        skip();
    }
    size_t n = fread(source, 1, sizeof source, f);
    fclose(f);
    return chat_template_create(source, n);
}

/* Released templates, where they are: all take a conversation with a call or say why not, and what
 * they want is found out. */
static void test_released(void **state)
{
    (void)state;
    static const struct {
        const char *file, *format, *thoughts;
        bool tools, text_arguments;
    } known[] = {
        {"Qwen-Qwen2.5-7B-Instruct.jinja", "hermes", "none", true, false},
        {"Qwen-Qwen3-0.6B.jinja", "hermes", "think", true, false},
        {"Qwen3.5-4B.jinja", "qwen-xml", "think", true, false},
        {"GLM-4.7-Flash.jinja", "glm", "think", true, false},
        {"meta-llama-Llama-3.1-8B-Instruct.jinja", "llama3", "none", true, false},
        {"meta-llama-Llama-3.2-3B-Instruct.jinja", "llama3", "none", true, false},
        {"mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral", "none", true, false},
        {"meetkai-functionary-medium-v3.1.jinja", "functionary-v3.1", "none", true, false},
        {"meetkai-functionary-medium-v3.2.jinja", "functionary-v3.2", "none", true, true},
        {"llama-cpp-deepseek-r1.jinja", "deepseek", "think", true, false},
        {"deepseek-ai-DeepSeek-V3.2.jinja", "deepseek-v3.2", "think", true, false},
        {"Kimi-K2-Instruct.jinja", "kimi", "none", true, false},
        {"ibm-granite-granite-3.3-2B-Instruct.jinja", "granite", "think", true, false},
        {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "hermes", "none", true, false},
        {"google-gemma-2-2b-it.jinja", "hermes", "none", false, false},
        {"LFM2-8B-A1B.jinja", "lfm2", "none", true, false},
        {"LFM2.5-Instruct.jinja", "lfm2", "think", true, false},
        {"google-gemma-4-31B-it-interleaved.jinja", "gemma", "gemma", true, false},
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja",
         "command-r7b",
         "command-r7b",
         true,
         false},
        {"CohereForAI-c4ai-command-r-plus-tool_use.jinja", "command-r", "none", true, false},
        {"openbmb-MiniCPM5-1B.jinja", "minicpm", "think", true, false},
        {"GigaChat3.1-10B-A1.8B.jinja", "gigachat", "none", true, false},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", "deepseek", "think", false, false},
        {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja", "deepseek", "think", false, true},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct chat_template *t = read_released(known[i].file);
        struct reply_style s = chat_template_style(t);
        const struct chat_traits *traits = chat_template_traits(t);
        if (strcmp(reply_format_name(s.format), known[i].format) != 0 ||
            strcmp(reply_thoughts_name(s.thoughts), known[i].thoughts) != 0 ||
            traits->tools != known[i].tools || traits->text_arguments != known[i].text_arguments)
            fail_msg("%s: %s, %s, tools %d, text %d",
                     known[i].file,
                     reply_format_name(s.format),
                     reply_thoughts_name(s.thoughts),
                     traits->tools,
                     traits->text_arguments);
        chat_template_destroy(t);
    }
}

/* What released templates refuse or lose is found out; of most that is nothing. */
static void test_released_wants(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        bool one_call, short_ids, null_content;
    } known[] = {
        {"meta-llama-Llama-3.1-8B-Instruct.jinja", true, false, false},
        {"meta-llama-Llama-3.2-3B-Instruct.jinja", true, false, false},
        {"mistralai-Mistral-Nemo-Instruct-2407.jinja", false, true, false},
        {"Mistral-Small-3.2-24B-Instruct-2506.jinja", false, true, false},
        {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja", false, false, true},
        {"llama-cpp-deepseek-r1.jinja", false, false, false},
        {"Qwen-Qwen3-0.6B.jinja", false, false, false},
        {"GLM-4.7-Flash.jinja", false, false, false},
        {"Kimi-K2-Instruct.jinja", false, false, false},
        {"Cohere2MoE.jinja", false, false, false},
        {"google-gemma-4-31B-it-interleaved.jinja", false, false, false},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct chat_template *t = read_released(known[i].file);
        const struct chat_traits *traits = chat_template_traits(t);
        if (traits->one_call != known[i].one_call || traits->short_ids != known[i].short_ids ||
            traits->null_content != known[i].null_content ||
            traits->inner_results != (strstr(known[i].file, "gemma-4") != NULL))
            fail_msg("%s: one call %d, short ids %d, null content %d, results inside %d",
                     known[i].file,
                     traits->one_call,
                     traits->short_ids,
                     traits->null_content,
                     traits->inner_results);
        assert_false(traits->thinking || traits->thinking_parts || traits->empty_parts);
        chat_template_destroy(t);
    }
}

static void test_style(void **state)
{
    (void)state;
    struct err_info e = {0};
    struct chat_template *t = chat_template_create("{{ tools }}", 11);
    assert_true(chat_template_calls_unknown(t));
    assert_int_equal(chat_template_set_style(t, "none", "auto", &e), OK);
    assert_false(chat_template_calls_unknown(t));
    assert_int_equal(chat_template_set_style(t, "mistral", "think", &e), OK);
    assert_string_equal(reply_format_name(chat_template_style(t).format), "mistral");
    assert_string_equal(reply_thoughts_name(chat_template_style(t).thoughts), "think");
    assert_int_equal(chat_template_set_style(t, "x", "auto", &e), ERR_INVALID);
    assert_string_equal(e.field, "tool-format");
    assert_int_equal(chat_template_set_style(t, "auto", "x", &e), ERR_INVALID);
    assert_string_equal(e.field, "reasoning-format");
    assert_int_equal(chat_template_set_style(t, "auto", "auto", &e), OK);
    assert_true(chat_template_calls_unknown(t));
    chat_template_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_released),
        cmocka_unit_test(test_released_wants),
        cmocka_unit_test(test_style),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
