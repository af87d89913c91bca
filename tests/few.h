/* Where every access is watched a test takes ten to a hundred times as long. With WEIR_FEW_SHAPES
 * it looks at what it is for over few shapes: in the checks for races (`make cuda-races` has all),
 * and under sanitizers (scripts/test.sh; conftest.py likewise). */
#ifndef WEIR_TESTS_FEW_H
#define WEIR_TESTS_FEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static inline bool few_shapes(void)
{
    const char *few = getenv("WEIR_FEW_SHAPES");
    return few && *few;
}

/* Of equals, is i one to leave out then? One of `each` is not. */
static inline bool few_leave_out(size_t i, size_t each)
{
    return few_shapes() && i % each != 0;
}

#endif
