/* programs/flags_words.c - what a program says of its flags. Owns nothing; any thread. */
#include "programs/flags.h"

#include "base/status.h"

static void help_of(const struct flag *flag, FILE *out) {
    const char *quote = flag->type == FLAG_TEXT || flag->type == FLAG_SIZE ? "\"" : "";

    if (flag->type == FLAG_BOOL)
        fprintf(out, "  --[no]%s\n", flag->name);
    else
        fprintf(out, "  --%s=%s\n", flag->name, flag_type_name(flag->type));
    fprintf(out, "      %s (default %s%s%s)\n", flag->words, quote, flag->initial, quote);
}

void flags_help(const struct flag *table, size_t count, const char *program, const char *purpose, FILE *out) {
    fprintf(out, "%s %s - %s\n\nUsage: %s [flags]\n", program, MOONCAKE_VERSION, purpose, program);
    fprintf(out, "  --x=v, --x v, -x=v, -x v; booleans --x, --nox, --x=false; the last of several wins;\n");
    fprintf(out, "  --help, --version; --flagfile=FILE reads flags from a file, one a line\n\nFlags:\n");
    for (size_t i = 0; i < count; i++)
        if (table[i].works)
            help_of(&table[i], out);
    fprintf(out, "\nAccepted without an effect:\n");
    for (size_t i = 0; i < count; i++)
        if (!table[i].works)
            help_of(&table[i], out);
}

void flags_warn(const struct flags *flags, const char *program, FILE *out) {
    const char *before = ": warning: accepted without an effect: --";

    for (size_t i = 0; i < flags->count; i++)
        if (flags->values[i].given && !flags->table[i].works) {
            fprintf(out, "%s%s%s", before[0] == ':' ? program : "", before, flags->table[i].name);
            before = ", --";
        }
    if (before[0] == ',')
        fputc('\n', out);
}

const char *flags_text(const struct flags *flags, size_t index) {
    const char *text = flags->values[index].text;

    return text[0] != '\0' ? text : NULL;
}

int flags_main(const struct flag *table, size_t count, int argc, char *const *argv, const char *program,
               const char *purpose, int32_t (*complete)(struct flags *flags, struct mc_error *error),
               int (*run)(const struct flags *flags)) {
    struct mc_error error = MC_ERROR_INIT;
    struct flags flags;
    int status = 0;

    if (flags_parse(&flags, table, count, argc, argv, &error) != MC_OK ||
        (flags.wish == FLAGS_RUN && complete != NULL && complete(&flags, &error) != MC_OK)) {
        fprintf(stderr, "%s: %s\n", program, error.message);
        status = 2;
    } else if (flags.wish == FLAGS_HELP) {
        flags_help(table, count, program, purpose, stdout);
    } else if (flags.wish == FLAGS_VERSION) {
        printf("%s %s\n", program, MOONCAKE_VERSION);
    } else {
        flags_warn(&flags, program, stderr);
        status = run(&flags);
    }
    flags_clear(&flags);
    return status;
}
