/* os/dynlib.c - opens a library and fills its table of functions in, or says why not.
 *
 * Owns nothing; the tables are their users'.
 *
 * Threads: any; each table is filled in once, under its own `once`.
 *
 * Invariant: the functions are set all or none, and only if `reason` is empty.
 */
#include "os/dynlib.h"

#include <dlfcn.h>
#include <stdio.h>

/* pthread_once takes no argument; the table that this thread is about to open. */
static _Thread_local struct dynlib *subject;

/* The first symbol that the opened library lacks, or NULL. */
static const char *missing_symbol(const struct dynlib *library, void *handle) {
    for (const struct dynlib_symbol *symbol = library->symbols; symbol->name != NULL; symbol++)
        if (dlsym(handle, symbol->name) == NULL)
            return symbol->name;
    return NULL;
}

static void open_subject(void) {
    struct dynlib *library = subject;
    char reason[sizeof(library->reason)] = "";

    for (const char *const *soname = library->sonames; *soname != NULL; soname++) {
        void *handle = dlopen(*soname, RTLD_NOW | RTLD_LOCAL);
        const char *missing = NULL;

        if (handle != NULL) {
            missing = missing_symbol(library, handle);
            if (missing == NULL) {
                for (const struct dynlib_symbol *symbol = library->symbols; symbol->name != NULL; symbol++)
                    *symbol->function = dlsym(handle, symbol->name);
                library->handle = handle;
                library->reason[0] = '\0';
                return;
            }
            (void)snprintf(reason, sizeof(reason), "%s lacks %s", *soname, missing);
            dlclose(handle);
        } else if (reason[0] == '\0') {
            const char *words = dlerror();

            (void)snprintf(reason, sizeof(reason), "%s", words != NULL ? words : "the loader gives no reason");
        }
    }
    (void)snprintf(library->reason, sizeof(library->reason), "%s", reason[0] != '\0' ? reason : library->name);
}

const char *dynlib_open(struct dynlib *library) {
    subject = library;
    (void)pthread_once(&library->once, open_subject);
    return library->handle != NULL ? NULL : library->reason;
}
