#include "grammar/json_pointer.h"

#include "base/hex.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 256 };

const char *json_local_ref(const json_t *root, const char *ref)
{
    const char *id = json_string_value(json_object_get(root, "$id"));
    const size_t n = id ? strcspn(id, "#") : 0;
    if (!ref || n == 0 || strncmp(ref, id, n) != 0 || (ref[n] != '#' && ref[n] != '\0'))
        return ref;
    return ref[n] ? ref + n : "#";
}

/* One step of a pointer: `key` of o, or an index. */
static const json_t *member_of(const json_t *o, const char *key)
{
    if (json_is_object(o))
        return json_object_get(o, key);
    if (!json_is_array(o) || strlen(key) > 8 || key[strspn(key, "0123456789")] || !*key)
        return NULL;
    return json_array_get(o, strtoul(key, NULL, 10));
}

/* Two digits behind a '%'. */
static bool percent(const char *s, char *out)
{
    const int high = hex_digit(s[0]), low = high < 0 ? -1 : hex_digit(s[1]);
    if (low < 0 || high + low == 0)
        return false;
    *out = (char)(high << 4 | low);
    return true;
}

/* One step of a pointer at *text, which is moved behind it. False: it is too long. */
static bool read_step(const char **text, char *key, size_t size)
{
    const char *p = *text;
    size_t n = 0;
    for (; *p && *p != '/' && n + 1 < size; p++) {
        key[n] = *p;
        if (*p == '%' && percent(p + 1, &key[n]))
            p += 2;
        n++;
    }
    key[n] = '\0';
    *text = p;
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        bool escaped = key[i] == '~' && (key[i + 1] == '0' || key[i + 1] == '1');
        key[to++] = escaped ? (key[++i] == '0' ? '~' : '/') : key[i];
    }
    key[to] = '\0';
    return *p == '\0' || *p == '/';
}

const json_t *json_pointer(const json_t *root, const char *ref)
{
    char key[KEY_BYTES];
    const json_t *at = root;
    if (ref[0] != '#' || (ref[1] != '/' && ref[1] != '\0'))
        return NULL;
    for (ref++; at && *ref == '/';) {
        ref++;
        at = read_step(&ref, key, sizeof key) ? member_of(at, key) : NULL;
    }
    return at;
}
