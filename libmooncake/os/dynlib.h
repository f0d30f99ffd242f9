/* os/dynlib.h - libraries that are opened when used: one table of functions each, and a reason when it isn't there. */
#ifndef MC_OS_DYNLIB_H
#define MC_OS_DYNLIB_H

#include <pthread.h>
#include <stddef.h>

struct dynlib_symbol {
    const char *name;
    void **function;
};

struct dynlib {
    const char *const *sonames;          /* tried in order, NULL-terminated */
    const struct dynlib_symbol *symbols; /* all are needed; ends with a NULL name */
    pthread_once_t once;                 /* PTHREAD_ONCE_INIT */
    void *handle;
    char reason[160]; /* why not, in words; empty when open */
};

/* Opens the library once per process and fills its functions in. NULL when it can be used, else why not, in words
 * that live as long as the process. Never closed. Any thread. */
const char *dynlib_open(struct dynlib *library);

#endif
