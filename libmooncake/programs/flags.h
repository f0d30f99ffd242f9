/* programs/flags.h - the flags of a program, spelled as gflags has it.
 *
 * A program's flags are a table made from its .def file, which holds lines
 *
 *     FLAG(name, TYPE, "default", WORKS or IGNORED, "words")
 *
 * with a type FLAG_<TYPE> of enum flag_type. docs/programs.md shows the same table, and a test compares the two.
 *
 * Spellings: --x=v, --x v, -x=v, -x v; for booleans also --x (true), --nox (false) and --x v where v is a boolean.
 * In names '-' and '_' are the same. `--` ends the flags. The last of several wins. Every program has --help,
 * --version and --flagfile=FILE (a flag a line, as --x=v or --x; empty lines and those with # count as none).
 *
 * One thread at a time.
 */
#ifndef MC_PROGRAMS_FLAGS_H
#define MC_PROGRAMS_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <mooncake/error.h>

enum flag_type {
    FLAG_BOOL,    /* true, t, yes, y, 1; false, f, no, n, 0 */
    FLAG_U64,     /* decimal */
    FLAG_INT,     /* the same, of 32 bits and perhaps with a minus; the value is the number modulo 2^64 */
    FLAG_PORT,    /* 0 to 65535 */
    FLAG_SIZE,    /* bytes: "4 GB", "512MB", "1.5g", "65536"; units are powers of 1024 */
    FLAG_MS,      /* milliseconds, or with a unit: "500ms", "10s", "30m", "1h"; the value is nanoseconds */
    FLAG_SECONDS, /* the same, where a plain number is seconds */
    FLAG_DOUBLE,  /* 0 or more */
    FLAG_RATIO,   /* 0 to 1 */
    FLAG_TEXT,
};

struct flag {
    const char *name;
    enum flag_type type;
    const char *initial; /* as it would be spelled */
    bool works;          /* else it is accepted, and has no effect */
    const char *words;
};

/* For the .def files. */
#define FLAG_WORKS true
#define FLAG_IGNORED false

struct flag_value {
    bool given;
    bool in_file; /* a file of settings has it */
    uint64_t
        number; /* FLAG_BOOL, FLAG_U64, FLAG_INT, FLAG_PORT; bytes of FLAG_SIZE; nanoseconds of FLAG_MS and FLAG_SECONDS */
    double real; /* FLAG_DOUBLE, FLAG_RATIO */
    char *text;  /* what was given, or the default */
};

enum flags_wish { FLAGS_RUN, FLAGS_HELP, FLAGS_VERSION };

struct flags {
    const struct flag *table; /* static */
    size_t count;
    struct flag_value *values; /* one for each of the table; owned */
    enum flags_wish wish;
};

/* Parses argv[1] and what follows; what wasn't given has its default. MC_ERR_INVALID_ARGUMENT names the flag: unknown
 * (with the nearest known name), malformed, without its value; or the stray argument. MC_ERR_SYSTEM: the flagfile
 * can't be read. MC_ERR_NO_MEMORY. `flags` must be freed in any case. */
int32_t flags_parse(struct flags *flags, const struct flag *table, size_t count, int argc, char *const *argv,
                    struct mc_error *error);

/* Takes a setting of a file, after the command line: a flag that was given there wins, but the value is looked at all the
 * same. `quoted`: it is a text, whatever it looks like; else it is one only if it looks like nothing else.
 * MC_ERR_INVALID_ARGUMENT names it: unknown, of the wrong type, or a second time. MC_ERR_NO_MEMORY. */
int32_t flags_set(struct flags *flags, const char *name, const char *text, bool quoted, struct mc_error *error);

/* Frees what *flags owns. */
void flags_clear(struct flags *flags);

/* Writes the help text: what the program is, and its flags with types, defaults and words. */
void flags_help(const struct flag *table, size_t count, const char *program, const char *purpose, FILE *out);

/* Writes one line that names the flags that were given and have no effect; nothing if there are none. */
void flags_warn(const struct flags *flags, const char *program, FILE *out);

/* All of the above, as a program's main: parses, answers --help and --version, writes errors and warnings to stderr, and
 * calls `run` with the flags if it is to run; before that `complete`, which may be NULL and adds what files say. The exit
 * status. */
int flags_main(const struct flag *table, size_t count, int argc, char *const *argv, const char *program,
               const char *purpose, int32_t (*complete)(struct flags *flags, struct mc_error *error),
               int (*run)(const struct flags *flags));

/* The text of a flag, NULL where it is empty. */
const char *flags_text(const struct flags *flags, size_t index);

/* Says on stderr what is wrong with a flag's value; the exit status for that. */
static inline int flags_wrong(const char *program, const char *flag, const char *words) {
    fprintf(stderr, "%s: --%s: %s\n", program, flag, words);
    return 2;
}

/* programs/flag_value.c: reads `text` as a value of this type. If it isn't one, false and *ret_value untouched; it
 * leaves `given` and `text` alone anyway. */
bool flag_value_read(enum flag_type type, const char *text, struct flag_value *ret_value);

/* "PORT" and such, for help; "" for booleans. */
const char *flag_type_name(enum flag_type type);

/* What a value of this type looks like, for errors: "a number from 0 to 65535". */
const char *flag_type_words(enum flag_type type);

#endif
