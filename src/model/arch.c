#include "model/arch.h"

#include <string.h>

const struct arch *arch_find(const char *name, size_t len)
{
    static const struct arch_table *const tables[] = {
        &arch_dense, &arch_experts, &arch_recurrent, &arch_encoders};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            const struct arch *a = &tables[t]->rows[i];
            if (strlen(a->name) == len && memcmp(a->name, name, len) == 0)
                return a;
        }
    }
    return NULL;
}
