/* Folders that a test makes and leaves nothing of. */
#ifndef WEIR_TESTS_SCRATCH_H
#define WEIR_TESTS_SCRATCH_H

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

/* For nftw. */
static inline int scratch_visit(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

/* With all that is in it; 0, or what nftw returned. */
static inline int remove_folder(const char *path)
{
    return nftw(path, scratch_visit, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
