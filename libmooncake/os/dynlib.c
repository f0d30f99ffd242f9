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

/* The library under one of its names; NULL with a reason if it isn't there or isn't complete. */
static void *open_complete(struct dynlib *library, const char *soname) {
    void *handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    const char *words;

    if (handle == NULL) {
        words = dlerror();
        if (library->reason[0] == '\0') /* what another name lacked says more */
            (void)snprintf(library->reason, sizeof(library->reason), "%s",
                           words != NULL ? words : "the loader gives no reason");
        return NULL;
    }
    words = missing_symbol(library, handle);
    if (words == NULL)
        return handle;
    (void)snprintf(library->reason, sizeof(library->reason), "%s lacks %s", soname, words);
    dlclose(handle);
    return NULL;
}

static void open_subject(void) {
    struct dynlib *library = subject;

    for (const char *const *soname = library->sonames; *soname != NULL && library->handle == NULL; soname++)
        library->handle = open_complete(library, *soname);
    if (library->handle == NULL)
        return;
    for (const struct dynlib_symbol *symbol = library->symbols; symbol->name != NULL; symbol++)
        *symbol->function = dlsym(library->handle, symbol->name);
    library->reason[0] = '\0';
}

const char *dynlib_open(struct dynlib *library) {
    subject = library;
    (void)pthread_once(&library->once, open_subject);
    return library->handle != NULL ? NULL : library->reason;
}
