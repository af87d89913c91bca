/* Ids of real vocabularies, recorded from another implementation. The files belong to others, so
 * they are read from the folder that WEIR_FIXTURES names, and this is skipped without it. */
#include "unit/tokenizer/toy_vocab.h"

static bool read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    char chunk[4096];
    if (!f)
        return false;
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        buf_add(out, chunk, n);
    fclose(f);
    buf_cstr(out);
    return true;
}

static void put_ids(struct buf *out, const struct token_list *ids)
{
    buf_clear(out);
    for (size_t i = 0; i < ids->n; i++)
        buf_printf(out, "%s%d", i ? " " : "", ids->ids[i]);
    buf_cstr(out);
}

/* Texts are separated by a line of this, ids are a line a text. */
static size_t compare(const struct tokenizer *t, const struct buf *texts, const struct buf *ids)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    const char *text = texts->data, *line = ids->data, *end = texts->data + texts->len;
    struct buf got = {0};
    size_t n = 0;
    for (;; n++) {
        const char *stop = strstr(text, separator);
        line += strspn(line, " ");
        size_t n_text = (size_t)((stop ? stop : end) - text), n_line = strcspn(line, "\n");
        while (n_line > 0 && line[n_line - 1] == ' ')
            n_line--;
        struct token_list list = encode(t, text, n_text, false);
        put_ids(&got, &list);
        token_list_deinit(&list);
        if (got.len != n_line || memcmp(got.data, line, n_line) != 0)
            fail_msg("text %zu: %s instead of %.*s", n, got.data, (int)n_line, line);
        if (!stop)
            break;
        text = stop + strlen(separator);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    buf_deinit(&got);
    return n + 1;
}

static void test_recorded_ids(void **state)
{
    (void)state;
    static const char *const names[] = {
        "bert-bge", "deepseek-llm", "falcon", "gpt-2", "llama-spm", "phi-3", "starcoder"};
    const char *root = getenv("WEIR_FIXTURES");
    if (!root) {
        print_message("skipped: WEIR_FIXTURES does not name the folder of fixtures\n");
        skip();
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[4096];
        struct buf texts = {0}, ids = {0};
        snprintf(path, sizeof path, "%s/tokenizers/%s.inp", root, names[i]);
        bool found = read_file(path, &texts);
        snprintf(path, sizeof path, "%s/tokenizers/%s.out", root, names[i]);
        found = found && read_file(path, &ids);
        if (!found)
            fail_msg("%s cannot be read", path);
        snprintf(path, sizeof path, "%s/tokenizers/%s.gguf", root, names[i]);
        struct loaded l = load_path(path);
        print_message("%s: %zu texts agree\n", names[i], compare(l.t, &texts, &ids));
        unload(&l);
        buf_deinit(&texts);
        buf_deinit(&ids);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recorded_ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
