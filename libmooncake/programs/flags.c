/* programs/flags.c - reads a command line, and says what is wrong with it.
 *
 * Owns the values in struct flags, and their texts. One thread at a time.
 */
#include "programs/flags.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define NAME_MAX_LENGTH 64u
#define LINE_MAX_LENGTH 4096u
#define NESTED_FILES 8u

/* What every program has. */
enum builtin { BUILTIN_HELP, BUILTIN_VERSION, BUILTIN_FLAGFILE, BUILTIN_COUNT };

static const struct flag builtins[BUILTIN_COUNT] = {
    [BUILTIN_HELP] = {"help", FLAG_BOOL, "false", true, "writes this and ends"},
    [BUILTIN_VERSION] = {"version", FLAG_BOOL, "false", true, "writes the version and ends"},
    [BUILTIN_FLAGFILE] = {"flagfile", FLAG_TEXT, "", true, "reads flags from this file, one a line, as --x=v or --x"},
};

/* One flag as it was written. */
struct written {
    const char *name; /* `length` bytes, without dashes and value */
    size_t length;
    const char *value;       /* NULL: none, or in the next argument */
    const struct flag *flag; /* NULL: unknown */
    bool negated;            /* --nox */
};

/* ---- Names ---- */

/* In names '-' and '_' are the same. */
static bool same_name(const char *name, size_t length, const char *known) {
    if (strlen(known) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] != known[i] && !(name[i] == '-' && known[i] == '_'))
            return false;
    return true;
}

static const struct flag *flag_at(const struct flags *flags, size_t index) {
    return index < flags->count ? &flags->table[index] : &builtins[index - flags->count];
}

static const struct flag *find(const struct flags *flags, const char *name, size_t length) {
    for (size_t i = 0; i < flags->count + BUILTIN_COUNT; i++)
        if (same_name(name, length, flag_at(flags, i)->name))
            return flag_at(flags, i);
    return NULL;
}

/* How many letters must be changed, added or left out to make one of the other. Both at most NAME_MAX_LENGTH. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t row[NAME_MAX_LENGTH + 1];

    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b_length];
}

/* The known name that is most like it; NULL if none is like it at all. */
static const char *nearest(const struct flags *flags, const char *name, size_t length) {
    const char *found = NULL;
    size_t best = length / 3 + 2;

    if (length > NAME_MAX_LENGTH)
        return NULL;
    for (size_t i = 0; i < flags->count + BUILTIN_COUNT; i++) {
        const char *known = flag_at(flags, i)->name;
        size_t known_length = strlen(known);
        size_t apart = known_length <= NAME_MAX_LENGTH ? distance(name, length, known, known_length) : best;

        if (apart < best) {
            best = apart;
            found = known;
        }
    }
    return found;
}

/* ---- Values ---- */

static int32_t no_memory(struct mc_error *error) {
    return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
}

static int32_t set_value(const struct flag *flag, const char *text, struct flag_value *value, struct mc_error *error) {
    char *copy;

    if (!flag_value_read(flag->type, text, value))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "--%s: \"%.80s\" isn't %s", flag->name, text,
                          flag_type_words(flag->type));
    copy = strdup(text);
    if (copy == NULL)
        return no_memory(error);
    free(value->text);
    value->text = copy;
    return MC_OK;
}

static int32_t read_file(struct flags *flags, const char *path, unsigned depth, struct mc_error *error);

static int32_t set_builtin(struct flags *flags, const struct flag *flag, const char *text, unsigned depth,
                           struct mc_error *error) {
    struct flag_value value = {0};

    if (flag == &builtins[BUILTIN_FLAGFILE])
        return read_file(flags, text, depth, error);
    if (!flag_value_read(flag->type, text, &value))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "--%s: \"%.80s\" isn't %s", flag->name, text,
                          flag_type_words(flag->type));
    if (value.number != 0 && flags->wish == FLAGS_RUN)
        flags->wish = flag == &builtins[BUILTIN_HELP] ? FLAGS_HELP : FLAGS_VERSION;
    return MC_OK;
}

/* ---- The command line ---- */

/* Takes an argument that begins with '-' apart. */
static struct written take_apart(const struct flags *flags, const char *argument) {
    struct written written = {.name = argument + (argument[1] == '-' ? 2 : 1)};
    const char *equals = strchr(written.name, '=');

    written.length = equals != NULL ? (size_t)(equals - written.name) : strlen(written.name);
    written.value = equals != NULL ? equals + 1 : NULL;
    written.flag = find(flags, written.name, written.length);
    if (written.flag == NULL && written.value == NULL && written.length > 2 && strncmp(written.name, "no", 2) == 0) {
        const struct flag *flag = find(flags, written.name + 2, written.length - 2);

        if (flag != NULL && flag->type == FLAG_BOOL) {
            written.flag = flag;
            written.negated = true;
        }
    }
    return written;
}

static int32_t unknown(const struct flags *flags, const struct written *written, struct mc_error *error) {
    const char *like = nearest(flags, written->name, written->length);
    int length = written->length < NAME_MAX_LENGTH ? (int)written->length : (int)NAME_MAX_LENGTH;

    if (like != NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "--%.*s: unknown flag; is --%s meant?", length,
                          written->name, like);
    return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "--%.*s: unknown flag; --help lists all", length,
                      written->name);
}

/* Is the next argument no flag, but a number below 0 for one that takes such? */
static bool is_negative(const struct flag *flag, const char *next) {
    struct flag_value probe;

    return flag->type == FLAG_INT && flag_value_read(FLAG_INT, next, &probe);
}

/* Takes one flag, whose value may be in `next` (NULL: there is none); *ret_used: it was. */
static int32_t take_flag(struct flags *flags, const char *argument, const char *next, unsigned depth, bool *ret_used,
                         struct mc_error *error) {
    struct written written = take_apart(flags, argument);
    struct flag_value probe;
    const char *text = written.value;
    int32_t status;

    *ret_used = false;
    if (written.flag == NULL)
        return unknown(flags, &written, error);
    if (text == NULL && written.flag->type == FLAG_BOOL) {
        *ret_used = !written.negated && next != NULL && flag_value_read(FLAG_BOOL, next, &probe);
        text = *ret_used ? next : written.negated ? "false" : "true";
    } else if (text == NULL) {
        /* "--a --b" lacks the value of a; one that begins with a dash is given as --a=-v. */
        if (next == NULL || (next[0] == '-' && next[1] != '\0' && !is_negative(written.flag, next)))
            return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "--%s: its value is missing; it takes %s",
                              written.flag->name, flag_type_words(written.flag->type));
        *ret_used = true;
        text = next;
    }
    if (written.flag >= builtins && written.flag < builtins + BUILTIN_COUNT)
        return set_builtin(flags, written.flag, text, depth, error);
    status = set_value(written.flag, text, &flags->values[written.flag - flags->table], error);
    if (status == MC_OK)
        flags->values[written.flag - flags->table].given = true;
    return status;
}

/* Takes one line of a flagfile. */
static int32_t take_line(struct flags *flags, char *line, unsigned depth, struct mc_error *error) {
    size_t length;
    bool used;

    line += strspn(line, " \t");
    length = strlen(line);
    while (length > 0 && strchr(" \t\r\n", line[length - 1]) != NULL)
        length--;
    line[length] = '\0';
    if (length == 0 || line[0] == '#')
        return MC_OK;
    if (line[0] != '-')
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "\"%.80s\" in a flagfile isn't a flag", line);
    return take_flag(flags, line, NULL, depth, &used, error);
}

static int32_t read_file(struct flags *flags, const char *path, unsigned depth, struct mc_error *error) {
    char line[LINE_MAX_LENGTH];
    int32_t status = MC_OK;
    FILE *file;

    if (depth >= NESTED_FILES)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "--flagfile: \"%.80s\": files name each other too deep",
                          path);
    file = fopen(path, "re");
    if (file == NULL)
        return status_set(error, MC_ERR_SYSTEM, errno, "--flagfile: \"%.120s\": %m", path);
    while (status == MC_OK && flags->wish == FLAGS_RUN && fgets(line, sizeof(line), file) != NULL) {
        if (strlen(line) == sizeof(line) - 1 && line[sizeof(line) - 2] != '\n')
            status = status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "--flagfile: \"%.80s\" has too long a line", path);
        else
            status = take_line(flags, line, depth + 1, error);
    }
    if (status == MC_OK && ferror(file))
        status = status_set(error, MC_ERR_SYSTEM, errno, "--flagfile: \"%.120s\": %m", path);
    (void)fclose(file);
    return status;
}

int32_t flags_parse(struct flags *flags, const struct flag *table, size_t count, int argc, char *const *argv,
                    struct mc_error *error) {
    int32_t status = MC_OK;
    bool used;

    *flags = (struct flags){.table = table, .count = count, .values = calloc(count + 1, sizeof(*flags->values))};
    if (flags->values == NULL)
        return no_memory(error);
    for (size_t i = 0; i < count && status == MC_OK; i++)
        status = set_value(&table[i], table[i].initial, &flags->values[i], error);
    for (int i = 1; i < argc && status == MC_OK && flags->wish == FLAGS_RUN; i += used ? 2 : 1) {
        used = false;
        if (strcmp(argv[i], "--") == 0 && i == argc - 1)
            break;
        if (strcmp(argv[i], "--") == 0)
            status = status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "\"%.80s\" isn't a flag, and nothing else is taken",
                                argv[i + 1]);
        else if (argv[i][0] != '-' || argv[i][1] == '\0')
            status = status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "\"%.80s\" isn't a flag, and nothing else is taken",
                                argv[i]);
        else
            status = take_flag(flags, argv[i], i + 1 < argc ? argv[i + 1] : NULL, 0, &used, error);
    }
    return status;
}

/* ---- Files of settings ---- */

/* What a plain word is in YAML and JSON when it is no text. */
static bool is_no_text(const char *text) {
    static const char *const words[] = {"", "~", "null", "true", "false"};
    size_t length = strlen(text);

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return strspn(text, "+-.") < length && strspn(text, "0123456789+-.eE") == length &&
           strchr(text, '.') == strrchr(text, '.');
}

/* May a value that is written so be of this type? Sizes and durations are numbers, or texts with a unit. */
static bool fits(enum flag_type type, const char *text, bool quoted) {
    switch (type) {
    case FLAG_TEXT:
        return quoted || !is_no_text(text);
    case FLAG_BOOL:
        return !quoted && strspn(text, "0123456789") == 0;
    case FLAG_SIZE:
    case FLAG_MS:
    case FLAG_SECONDS:
        return true;
    default:
        return !quoted;
    }
}

int32_t flags_set(struct flags *flags, const char *name, const char *text, bool quoted, struct mc_error *error) {
    const struct flag *flag = find(flags, name, strlen(name));
    size_t index = flag != NULL ? (size_t)(flag - flags->table) : flags->count;
    struct flag_value *value, read = {0};
    const char *like;
    int32_t status;

    if (index >= flags->count) {
        like = nearest(flags, name, strlen(name));
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "\"%.64s\" is no setting%s%s%s", name,
                          like != NULL ? "; is " : "", like != NULL ? like : "", like != NULL ? " meant?" : "");
    }
    value = &flags->values[index];
    if (value->in_file)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "%s is there twice", flag->name);
    if (!fits(flag->type, text, quoted) || !flag_value_read(flag->type, text, &read))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "%s: %s%.80s%s isn't %s", flag->name, quoted ? "\"" : "",
                          text[0] != '\0' || quoted ? text : "nothing", quoted ? "\"" : "",
                          flag_type_words(flag->type));
    status = set_value(flag, text, value->given ? &read : value, error);
    free(read.text);
    value->given = true;
    value->in_file = true;
    return status;
}

void flags_clear(struct flags *flags) {
    for (size_t i = 0; i < flags->count && flags->values != NULL; i++)
        free(flags->values[i].text);
    free(flags->values);
    flags->values = NULL;
}
