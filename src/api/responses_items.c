/* GET /v1/responses/{id}/input_items: what a kept answer was made of, item by item.
 *
 *      of previous_response_id     its own list, and what it answered
 *      input                       a message of the user's, or the items as they came
 *
 * All are kept with the answer, so that the list stays when an earlier answer goes. Each has an id
 * that no other of the list has, by which a client asks for the next page. */
#include "api/responses.h"
#include "api/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PAGE 20
#define MAX_PAGE 100
#define MAX_ID_BYTES 64 /* of one that a client chose */

/* --- keeping -------------------------------------------------------------------------------- */

/* A list under way. */
struct listing {
    json_t *all;
    json_t *ids; /* {id of one of them: true} */
};

/* The beginning of the ids of such items. */
static const char *prefix_of(const char *type)
{
    static const char *const prefixes[][2] = {{"message", "msg_"},
                                              {"reasoning", "rs_"},
                                              {"function_call", "fc_"},
                                              {"function_call_output", "fco_"},
                                              {"custom_tool_call", "ctc_"},
                                              {"custom_tool_call_output", "ctco_"}};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strcmp(type, prefixes[i][0]) == 0)
            return prefixes[i][1];
    return "item_";
}

/* One that can stand in a query as it is, and that no other has. */
static bool may_stay(const struct listing *l, const char *id)
{
    static const char plain[] =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-.:";
    const size_t n = strlen(id);
    return n > 0 && n < MAX_ID_BYTES && strspn(id, plain) == n && !json_object_get(l->ids, id);
}

/* The text of a message as its one part. */
static json_t *part_of(json_t *text, bool assistant)
{
    json_t *part =
        json_pack("{s:s, s:O}", "type", assistant ? "output_text" : "input_text", "text", text);
    if (assistant)
        json_object_set_new(part, "annotations", json_array());
    return json_pack("[o]", part);
}

/* The item is another's; it was read before, so it is well formed. */
static void add(struct listing *l, const json_t *item)
{
    char fresh[40];
    json_t *own = json_copy((json_t *)item), *content = json_object_get(own, "content");
    const char *type = api_text_at(own, "type");
    const bool message = !type[0] || strcmp(type, "message") == 0;
    const char *id = api_text_at(own, "id");
    if (message) {
        json_object_set_new(own, "type", json_string("message"));
        if (json_is_string(content))
            json_object_set_new(
                own,
                "content",
                part_of(content, strcmp(api_text_at(own, "role"), "assistant") == 0));
    }
    if (!api_get(own, "status")) /* clients' types have it */
        json_object_set_new(own, "status", json_string("completed"));
    if (!may_stay(l, id)) {
        api_new_id(prefix_of(message ? "message" : type), fresh, sizeof fresh);
        json_object_set_new(own, "id", json_string(fresh));
        id = fresh;
    }
    json_object_set_new(l->ids, id, json_true());
    json_array_append_new(l->all, own);
}

static void add_all(struct listing *l, const json_t *items)
{
    for (size_t i = 0; i < json_array_size(items); i++)
        add(l, json_array_get(items, i));
}

enum err responses_keep_items(struct responses *r,
                              const json_t *earlier,
                              const json_t *answer,
                              const json_t *input,
                              struct err_info *e)
{
    struct listing l = {json_array(), json_object()};
    add_all(&l, earlier);
    add_all(&l, json_object_get(answer, "output"));
    if (json_is_string(input)) {
        json_t *said = json_pack("{s:s, s:O}", "role", "user", "content", input);
        add(&l, said);
        json_decref(said);
    } else {
        add_all(&l, input);
    }
    char *kept = json_dumps(l.all, JSON_COMPACT | JSON_REAL_PRECISION(15));
    buf_str(&r->given, kept ? kept : "");
    const bool failed = !kept || r->given.failed;
    free(kept);
    json_decref(l.all);
    json_decref(l.ids);
    return failed ? err_set(e, ERR_NOMEM, "no memory to keep the input") : OK;
}

/* --- the list ------------------------------------------------------------------------------- */

struct page {
    size_t from; /* of the list in its order, or backwards */
    uint32_t n;
    bool ascending;
};

static size_t place(const struct page *p, size_t n_all, size_t k)
{
    return p->ascending ? k : n_all - 1 - k;
}

/* from: behind the item that is named. */
static enum err find_after(const json_t *all,
                           const struct api_input *in,
                           struct page *p,
                           struct err_info *e)
{
    char after[MAX_ID_BYTES];
    const size_t n_all = json_array_size(all);
    if (!api_query_get(in, "after", after, sizeof after) || !after[0])
        return OK;
    for (size_t k = 0; k < n_all; k++) {
        if (strcmp(api_text_at(json_array_get(all, place(p, n_all, k)), "id"), after) == 0) {
            p->from = k + 1;
            return OK;
        }
    }
    return err_invalid(e, "after", "there is no item '%s' in the input", after);
}

static void put_page(const json_t *all, const struct page *p, struct buf *out)
{
    const size_t n_all = json_array_size(all);
    const size_t n = n_all - p->from < p->n ? n_all - p->from : p->n;
    const char *first = NULL, *last = NULL;
    buf_str(out, "{\"object\":\"list\",\"data\":[");
    for (size_t k = 0; k < n; k++) {
        const json_t *item = json_array_get(all, place(p, n_all, p->from + k));
        char *text = json_dumps(item, JSON_COMPACT | JSON_REAL_PRECISION(15));
        out->failed |= !text;
        buf_str(out, k > 0 ? "," : "");
        buf_str(out, text ? text : "");
        free(text);
        first = first ? first : api_text_at(item, "id");
        last = api_text_at(item, "id");
    }
    buf_char(out, ']');
    api_field_text(out, "first_id", first);
    api_field_text(out, "last_id", last);
    api_field_bool(out, "has_more", p->from + n < n_all);
    buf_char(out, '}');
}

enum err api_response_items(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    char id[64];
    const char *at = api_path_after(in->path, "/responses/");
    struct buf kept = {.may_fail = true};
    struct buf *texts[N_KEPT] = {[KEPT_ITEMS] = &kept};
    struct page page = {.n = DEFAULT_PAGE};
    json_error_t je;
    enum err err = api_query_page(in, MAX_PAGE, &page.ascending, &page.n, e);
    if (err)
        return err;
    snprintf(id, sizeof id, "%.*s", (int)strcspn(at, "/"), at);
    if (!api_store_get(c->api->store, api_owner(c), id, texts))
        return responses_none(id, e);
    json_t *all = kept.failed ? NULL : api_json_load(kept.data, kept.len, JSON_ALLOW_NUL, &je);
    buf_deinit(&kept);
    if (!all)
        return api_no_memory(e);
    if (!(err = find_after(all, in, &page, e)))
        put_page(all, &page, &c->body);
    json_decref(all);
    return err;
}
