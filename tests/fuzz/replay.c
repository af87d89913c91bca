/* Run a fuzz target over files or folders of files, once each: the corpus as a test, with any
 * compiler. Exit status 1 if there was nothing to run. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static size_t run_file(const char *path, size_t n_bytes)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(n_bytes ? n_bytes : 1); /* exact, so that ASan sees one byte too far */
    if (!f || !data || fread(data, 1, n_bytes, f) != n_bytes) {
        fprintf(stderr, "replay: cannot read %s\n", path);
        exit(1);
    }
    fclose(f);
    LLVMFuzzerTestOneInput(data, n_bytes);
    free(data);
    return 1;
}

static size_t run(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        exit(1);
    }
    if (!S_ISDIR(st.st_mode))
        return run_file(path, (size_t)st.st_size);
    DIR *dir = opendir(path);
    size_t n = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char inner[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        n += run(inner);
    }
    if (dir)
        closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    size_t n = 0;
    for (int i = 1; i < argc; i++)
        n += run(argv[i]);
    printf("%zu inputs\n", n);
    return n == 0;
}
