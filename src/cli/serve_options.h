/* The flags of weir serve, each also as WEIR_... in the environment (--max-queue: WEIR_MAX_QUEUE);
 * a flag wins over the environment. */
#ifndef WEIR_CLI_SERVE_OPTIONS_H
#define WEIR_CLI_SERVE_OPTIONS_H

#include "engine/engine.h"
#include "http/http.h"

struct serve_options {
    const char *model;   /* NULL: the built-in one */
    const char *alias;   /* NULL: from the file's name */
    const char *api_key; /* NULL: open */
    bool no_embeddings;
    uint32_t drain_timeout_s;
    struct engine_config engine;
    struct http_config http;
    char **env_argv; /* owned: flags made from the environment */
    int n_env;
};

/* Exits with status 2 on bad flags, 0 after --help. */
void serve_parse(int argc, char **argv, struct serve_options *out);
void serve_options_deinit(struct serve_options *o);

/* The id clients see: the alias, or the file's name without folder and ".gguf". */
void serve_model_id(const struct serve_options *o, const char *path, char *out, size_t cap);

#endif
