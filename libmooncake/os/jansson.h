/* os/jansson.h - libjansson, which reads JSON that comes from outside; opened when first used. */
#ifndef MC_OS_JANSSON_H
#define MC_OS_JANSSON_H

#include <stddef.h>

/* A value of the library's; never looked into. */
struct json_value;

#define JANSSON_REJECT_DUPLICATES 1u

/* What is used of it; see its manual. The functions may be called once jansson_unavailable has answered NULL. */
struct jansson {
    /* An object or array, and nothing behind it, or NULL. Strings with a NUL in them are refused. `error` may be NULL. */
    struct json_value *(*loadb)(const char *text, size_t length, size_t flags, void *error);
    /* 0 if the value has the shape of the format; what it points to lives as long as the value. */
    int (*unpack_ex)(struct json_value *value, void *error, size_t flags, const char *format, ...);
    /* Walks over an object, in the order of the text; NULL behind the last pair. */
    void *(*object_iter)(struct json_value *object);
    void *(*object_iter_next)(struct json_value *object, void *pair);
    const char *(*object_iter_key)(void *pair);
    struct json_value *(*object_iter_value)(void *pair);
    /* Of what is no array it is 0 and NULL, of what is no string NULL. */
    size_t (*array_size)(const struct json_value *array);
    struct json_value *(*array_get)(const struct json_value *array, size_t index);
    const char *(*string_value)(const struct json_value *string);
    /* Of what loadb gave, if nobody has taken a reference on it. */
    void (*free_root)(struct json_value *value);
};

extern struct jansson jansson;

/* NULL, or why JSON can't be read in this process; words that live as long as it. Any thread. */
const char *jansson_unavailable(void);

#endif
