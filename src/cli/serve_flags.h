/* What weir serve takes: the table that argp reads and --help shows. For serve_options.c. */
#ifndef WEIR_CLI_SERVE_FLAGS_H
#define WEIR_CLI_SERVE_FLAGS_H

#include <argp.h>

enum key {
    KEY_HOST = 256,
    KEY_PORT,
    KEY_THREADS,
    KEY_KV_MEMORY,
    KEY_KV_TYPE,
    KEY_CONTEXT,
    KEY_POOLING,
    KEY_EMBEDDINGS,
    KEY_MAX_RUNNING,
    KEY_MAX_QUEUE,
    KEY_BATCH_TOKENS,
    KEY_ITL_TARGET,
    KEY_BATCH_WINDOW,
    KEY_OVERCOMMIT,
    KEY_HOST_CACHE,
    KEY_CACHE_DIR,
    KEY_CACHE_DISK,
    KEY_ALIAS,
    KEY_TAGS,
    KEY_ANY_MODEL,
    KEY_CHAT_TEMPLATE_NAME,
    KEY_CHAT_TEMPLATE,
    KEY_REASONING,
    KEY_TOOL_FORMAT,
    KEY_REASONING_FORMAT,
    KEY_API_PREFIX,
    KEY_SLOTS,
    KEY_API_KEY,
    KEY_API_KEYS,
    KEY_ADMIN_KEY_FILE,
    KEY_TLS_CERT,
    KEY_TLS_KEY,
    KEY_CORS_ORIGIN,
    KEY_ACCESS_LOG,
    KEY_SLOW_LOG,
    KEY_DRAIN_TIMEOUT,
    KEY_MAX_BODY,
    KEY_MAX_CONNECTIONS,
    KEY_PRESET,
    KEY_BATCH_DIR,
    KEY_BATCH_PARALLEL,
    KEY_BATCH_FILE,
    KEY_TEMPERATURE,
    KEY_TOP_P,
    KEY_TOP_K,
    KEY_MIN_P,
    KEY_REPEAT_PENALTY,
    KEY_REPEAT_LAST_N,
    KEY_SEED,
    KEY_MAX_TOKENS,
    KEY_VERBOSE,
};

extern const struct argp_option serve_flags[]; /* up to one without name and doc */
extern const char serve_doc[];

#endif
