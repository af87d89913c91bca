/* Any bytes as a GGUF file: whatever opens is then read to the last byte, as a caller would. */
#include "gguf/gguf.h"

#include <stdlib.h>
#include <string.h>

/* The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void use(uint64_t v)
{
    static volatile uint64_t sink;
    sink = sink + v;
}

static void use_bytes(const void *data, size_t n)
{
    const uint8_t *b = data;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += b[i];
    use(sum);
}

static void show(struct gguf_str s)
{
    char text[64];
    use_bytes(text, strlen(gguf_show(s, text, sizeof text)));
    use_bytes(s.data, s.len);
}

static void read_by_key(const struct gguf *g, struct gguf_str key)
{
    char *name = malloc(key.len + 1);
    struct err_info e;
    uint32_t u = 0;
    float f = 0;
    bool b = false;
    struct gguf_str s = {"", 0};
    memcpy(name, key.data, key.len);
    name[key.len] = '\0';
    if (strlen(name) == key.len && !gguf_find(g, name))
        abort(); /* what is listed must be found */
    use((uint64_t)gguf_get_u32(g, name, &u, &e) + u);
    use((uint64_t)gguf_get_f32(g, name, &f, &e) + (f != f));
    use((uint64_t)gguf_get_bool(g, name, &b, &e) + b);
    use((uint64_t)gguf_get_str(g, name, &s, &e));
    show(s);
    if (f != f)
        abort(); /* only finite numbers are handed out */
    free(name);
}

static void read_metadata(const struct gguf *g)
{
    for (uint64_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        const uint8_t *at = kv->elems;
        show(kv->key);
        read_by_key(g, kv->key);
        for (uint64_t j = 0; kv->kind == GGUF_ARRAY && j < kv->n_elems; j++) {
            if (kv->elem_kind == GGUF_STRING)
                show(gguf_next_str(&at));
            else
                use(gguf_elem(kv, j).kind);
        }
    }
}

static void read_tensors(const struct gguf *g)
{
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        size_t n = t->ne[0];
        show(t->name);
        use_bytes(t->data, t->n_bytes);
        use_bytes(gguf_type_name(t->type), 1);
        if (!gguf_type_is_computed(t->type) || n > (1 << 16))
            continue;
        float *row = malloc(n * sizeof *row);
        gguf_dequantize(t->type, t->data, row, n);
        use_bytes(row, n * sizeof *row);
        free(row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct gguf *g;
    struct err_info e = {0};
    enum err err = gguf_open_memory(data, n_bytes, &g, &e);
    if (err) {
        if (g || e.code != err || e.text[0] == '\0' || strchr(e.text, '\n'))
            abort(); /* an error must come with one line that tells what it is */
        return 0;
    }
    read_metadata(g);
    read_tensors(g);
    gguf_close(g);
    return 0;
}
