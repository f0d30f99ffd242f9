/* os/jansson.c - the table of libjansson's functions.
 *
 * Owns the table, which is filled in once and constant from then on. Any thread.
 */
#include "os/jansson.h"

#include "os/dynlib.h"

struct jansson jansson;

static const struct dynlib_symbol symbols[] = {{"json_loadb", (void **)(void *)&jansson.loadb},
                                               {"json_unpack_ex", (void **)(void *)&jansson.unpack_ex},
                                               {"json_object_iter", (void **)(void *)&jansson.object_iter},
                                               {"json_object_iter_next", (void **)(void *)&jansson.object_iter_next},
                                               {"json_object_iter_key", (void **)(void *)&jansson.object_iter_key},
                                               {"json_object_iter_value", (void **)(void *)&jansson.object_iter_value},
                                               {"json_array_size", (void **)(void *)&jansson.array_size},
                                               {"json_array_get", (void **)(void *)&jansson.array_get},
                                               {"json_string_value", (void **)(void *)&jansson.string_value},
                                               {"json_delete", (void **)(void *)&jansson.free_root},
                                               {NULL, NULL}};
static const char *const sonames[] = {"libjansson.so.4", NULL};
static struct dynlib library = {.sonames = sonames, .symbols = symbols, .once = PTHREAD_ONCE_INIT};

const char *jansson_unavailable(void) {
    return dynlib_open(&library);
}
