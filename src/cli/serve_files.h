/* The files that say who may and who we are: keys, the administrator's key, certificate and its
 * key, and the access log. Read at start, where a mistake is an error, and again on SIGHUP, where
 * it is a line on stderr and what was there before stays. */
#ifndef WEIR_CLI_SERVE_FILES_H
#define WEIR_CLI_SERVE_FILES_H

#include "api/api.h"
#include "cli/serve_options.h"

struct line_log;

struct serve_files {
    const struct serve_options *opt;
    struct line_log *lines;   /* of calls, or NULL */
    char *tls_cert, *tls_key; /* texts, until the server has them */
    char *admin_key;
    bool again; /* they have been read before: what is no regular file is an error */
};

/* Open the log and read what must be known before the server is there. */
enum err serve_files_open(struct serve_files *f,
                          const struct serve_options *o,
                          struct err_info *e) WEIR_MUST_USE;
enum err serve_files_load_keys(const struct serve_files *f,
                               struct api *api,
                               struct err_info *e) WEIR_MUST_USE;
void serve_files_forget(struct serve_files *f); /* secrets that are in force by now */
void serve_files_close(struct serve_files *f);

/* Can a client send it as a key: visible ASCII without blanks? */
bool serve_is_key(const char *s);

bool serve_files_any(const struct serve_options *o); /* is there anything to read again? */
void serve_files_reload(struct serve_files *f, struct api *api, struct http_server *http);

/* An api_line_fn over a struct serve_files. */
void serve_files_line(void *ctx, const char *line, size_t n);

#endif
