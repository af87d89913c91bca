/* Any bytes as the two files of a split model, on a disk in memory. The first two bytes tell how
 * long the first file is. What opens is read to the last byte, and let go of. */
#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static char dir[32];
static char paths[2][64];

static void clean_up(void)
{
    unlink(paths[0]);
    unlink(paths[1]);
    rmdir(dir);
}

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/dev/shm/weir-fuzz-XXXXXX");
    if (!mkdtemp(dir)) { /* a system without it: slower, and as good */
        snprintf(dir, sizeof dir, "/tmp/weir-fuzz-XXXXXX");
        if (!mkdtemp(dir))
            abort();
    }
    for (int i = 0; i < 2; i++)
        snprintf(paths[i], sizeof paths[i], "%s/m-%05d-of-00002.gguf", dir, i + 1);
    atexit(clean_up);
}

static void put(const char *path, const uint8_t *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        abort();
}

static uint64_t read_all(const struct gguf *g)
{
    uint64_t sum = gguf_hash(g) + gguf_file_bytes(g);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->part >= gguf_n_parts(g) ||
            gguf_tensor_offset(g, t) + t->n_bytes > gguf_part_bytes(g, t->part))
            abort();
        for (size_t at = 0; at < t->n_bytes; at++)
            sum += t->data[at];
        gguf_drop_pages(g, t, 0, t->n_bytes);
    }
    for (uint64_t i = 0; i < gguf_n_kv(g); i++)
        sum += gguf_kv_at(g, i)->key.len;
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    uint16_t n;
    struct gguf *g;
    struct err_info e = {0};
    if (n_bytes < sizeof n)
        return 0;
    if (!paths[0][0])
        make_dir();
    memcpy(&n, data, sizeof n);
    data += sizeof n;
    n_bytes -= sizeof n;
    size_t first = n < n_bytes ? n : n_bytes;
    put(paths[0], data, first);
    put(paths[1], data + first, n_bytes - first);
    enum err err = gguf_open(paths[0], &g, &e);
    if (err) {
        if (g || e.code != err || e.text[0] == '\0' || strchr(e.text, '\n'))
            abort();
        return 0;
    }
    uint64_t sum = read_all(g);
    if (read_all(g) != sum)
        abort(); /* dropped pages are read again, the same */
    gguf_close(g);
    return 0;
}
