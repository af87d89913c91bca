/* The flags of weir serve, each also as WEIR_... in the environment (--max-queue: WEIR_MAX_QUEUE);
 * a flag wins over the environment. */
#ifndef WEIR_CLI_SERVE_OPTIONS_H
#define WEIR_CLI_SERVE_OPTIONS_H

#include "base/buf.h"
#include "batches/batches.h"
#include "engine/engine.h"
#include "http/http.h"

/* Names from a list with commas, each once, in the order of the alphabet. */
struct serve_names {
    const char *names[64]; /* [n], in `text`, which is owned */
    size_t n;
    char *text;
};

struct serve_options {
    const char *model;          /* NULL: the built-in one */
    struct serve_names aliases; /* none: from the file's name */
    struct serve_names tags;
    const char *api_prefix; /* NULL: none */
    bool no_slots;
    uint32_t max_tokens; /* of requests that do not say; 0: as their API has it */
    const char *api_key; /* NULL: open */
    const char *api_keys_file, *admin_key_file; /* NULL: none */
    const char *tls_cert_file, *tls_key_file;   /* both or neither */
    const char **cors_origins;                  /* [n_cors_origins], owned */
    size_t n_cors_origins;
    const char *access_log; /* NULL: none; "-": stdout */
    bool log_slow;
    uint32_t slow_ms;
    bool any_model;            /* whatever a request names */
    const char *chat_template; /* a name, "none" or a text; NULL: the file, or the model's own */
    const char *chat_template_file;             /* NULL: the model's own */
    const char *tool_format, *reasoning_format; /* as chat_template_set_style takes them */
    bool no_embeddings;
    const char *reasoning; /* "on", "off", "auto" or NULL: the same */
    struct buf defaults;   /* of sampling, as the inside of a JSON object */
    bool no_advice;        /* of the model's file, of sampling */
    uint32_t drain_timeout_s;
    struct engine_config engine;
    struct batches_config batches; /* dir NULL: none */
    const struct preset *preset;   /* NULL: none was named */
    bool itl_given;                /* where 0 is a value */
    struct http_config http;
    bool *given; /* [rows of serve_flags], while parsing: on the command line */
};

/* Exits with status 2 on bad flags, 0 after --help. */
void serve_parse(int argc, char **argv, struct serve_options *out);
void serve_options_deinit(struct serve_options *o);

/* Errors: ERR_INVALID (an empty name, or one of more than 128 bytes; more than 64). */
enum err serve_names_parse(const char *list,
                           struct serve_names *out,
                           struct err_info *e) WEIR_MUST_USE;
void serve_names_deinit(struct serve_names *n);

/* The id clients see: the first alias, or the file's name without folder and ".gguf". */
void serve_model_id(const struct serve_options *o, const char *path, char *out, size_t cap);

#endif
