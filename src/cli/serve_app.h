/* What joins http/ and api/, neither of which knows the other: the API's calls, and between them
 * those of the batches, as what an HTTP server asks for. */
#ifndef WEIR_CLI_SERVE_APP_H
#define WEIR_CLI_SERVE_APP_H

#include "api/api.h"
#include "batches/batches.h"
#include "http/http.h"

/* Filled in, and what it points to owned, by whoever opens the server: the API and the prefix
 * before the server is there, the batches before it runs. */
struct serve_app {
    struct api *api;
    struct batches *batches; /* with --batch-dir; else NULL */
    const char *api_prefix;  /* NULL: none */
};

/* a must outlive the server. news_fd: readable when a call of the API or of the batches has news,
 * as http_app wants it. */
struct http_app serve_app_ops(struct serve_app *a, int news_fd);

#endif
