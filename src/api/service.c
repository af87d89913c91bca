/* Routes that another folder answers: /v1/files and /v1/batches. The key was checked; errors,
 * counting and request ids are as everywhere. */
#include "api/call.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES (64u << 10)

enum err api_serve(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    struct api_reply reply = {.fd = -1};
    struct api_input asked = *in;
    const struct api_service *s = &c->api->service;
    const bool head = strcmp(in->method, "HEAD") == 0;
    if (head)
        asked.method = "GET";
    asked.owner = c->key ? api_key_name(c->key) : "";
    if (!s->handle)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "files and batches need a folder to be kept in: weir serve --batch-dir DIR");
    if (strcmp(asked.method, "GET") != 0 && atomic_load(&c->api->draining))
        return err_set(e, ERR_DRAINING, "the server is shutting down");
    enum err err = s->handle(s->ctx, &asked, &reply, e);
    if (err) {
        buf_deinit(&reply.body);
        return err;
    }
    buf_deinit(&c->body);
    c->body = reply.body;
    c->body.may_fail = true;
    if (reply.fd >= 0) {
        c->file_fd = reply.fd;
        c->file_due = head ? 0 : reply.n_bytes;
        c->answer.content_type = reply.content_type;
        c->answer.stream = reply.n_bytes > 0; /* with nothing to read the answer is whole */
        c->answer.n_bytes = reply.n_bytes;
    }
    return OK;
}

/* Loop thread: the file was just written or is read in order, so a read rarely waits for a disk. */
enum api_pull api_pull_file(struct api_call *c, struct buf *out)
{
    size_t n = c->file_due < READ_BYTES ? (size_t)c->file_due : READ_BYTES;
    if (!buf_reserve(out, n))
        return API_CUT;
    ssize_t got;
    do
        got = n > 0 ? read(c->file_fd, out->data + out->len, n) : 0;
    while (got < 0 && errno == EINTR);
    if (n > 0 && got <= 0)
        return API_CUT;
    out->len += (size_t)got;
    c->file_due -= (uint64_t)got;
    return c->file_due == 0 ? API_DONE : API_MORE;
}
