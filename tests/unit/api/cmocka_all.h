/* cmocka wants these before its own header. */
#ifndef WEIR_TESTS_API_CMOCKA_ALL_H
#define WEIR_TESTS_API_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* order matters */
#include <cmocka.h>

#endif
