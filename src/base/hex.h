/* Hexadecimal digits. */
#ifndef WEIR_BASE_HEX_H
#define WEIR_BASE_HEX_H

/* 0 .. 15, of either case; -1: it is none. */
static inline int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

#endif
