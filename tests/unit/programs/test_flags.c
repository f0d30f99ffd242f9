/* test_flags.c - every spelling of a flag is understood, and what is wrong is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "programs/flags.h"

#define WORDS_MAX 12
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { ON, OFF, NUMBER, HOST, WAIT, SIZE, RATIO, NOTE, WHICH, TABLE };

static const struct flag table[TABLE] = {
    [ON] = {"switched_on", FLAG_BOOL, "true", true, "words"},
    [OFF] = {"switched_off", FLAG_BOOL, "false", false, "words"},
    [NUMBER] = {"number", FLAG_U64, "7", true, "words"},
    [HOST] = {"host_name", FLAG_TEXT, "here", true, "words"},
    [WAIT] = {"wait", FLAG_SECONDS, "10", true, "words"},
    [SIZE] = {"size", FLAG_SIZE, "4 GB", false, "words"},
    [RATIO] = {"ratio", FLAG_RATIO, "0.5", false, "words"},
    [NOTE] = {"note", FLAG_BOOL, "true", true, "words"}, /* --note isn't --no with "te" */
    [WHICH] = {"which", FLAG_INT, "0", true, "words"},
};

/* Parses a NULL-terminated list of arguments. */
static int32_t parse(struct flags *flags, const char *const *words, struct mc_error *error) {
    char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t) "program"};
    int argc = 1;

    while (argc <= WORDS_MAX && words[argc - 1] != NULL) {
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
        argc++;
    }
    return flags_parse(flags, table, TABLE, argc, argv, error);
}

/* A file with this text; its path, to be unlinked and freed. */
static char *file_with(const char *text) {
    char *path = strdup("/tmp/mooncake-flags-XXXXXX");
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return path;
}

static void drop_file(char *path) {
    unlink(path);
    free(path);
}

static void every_spelling_sets_the_flag(void **state) {
    static const struct {
        const char *words[4];
        int flag;
        uint64_t number;
        const char *text;
    } cases[] = {
        {{"--number=5"}, NUMBER, 5, "5"},
        {{"-number=5"}, NUMBER, 5, "5"},
        {{"--number", "5"}, NUMBER, 5, "5"},
        {{"-number", "5"}, NUMBER, 5, "5"},
        {{"--number=5", "--number=6"}, NUMBER, 6, "6"},
        {{"--number=5", "--"}, NUMBER, 5, "5"},
        {{"--number=18446744073709551615"}, NUMBER, UINT64_MAX, "18446744073709551615"},
        {{"--switched_off"}, OFF, 1, "true"},
        {{"-switched_off"}, OFF, 1, "true"},
        {{"--switched_off=true"}, OFF, 1, "true"},
        {{"-switched_off=yes"}, OFF, 1, "yes"},
        {{"--switched_off", "1"}, OFF, 1, "1"},
        {{"--switched_off", "--number=5"}, OFF, 1, "true"},
        {{"--noswitched_on"}, ON, 0, "false"},
        {{"-noswitched_on"}, ON, 0, "false"},
        {{"--noswitched-on"}, ON, 0, "false"},
        {{"--switched_on=false"}, ON, 0, "false"},
        {{"--switched_on", "false"}, ON, 0, "false"},
        {{"-switched_on", "n"}, ON, 0, "n"},
        {{"--switched-on=0"}, ON, 0, "0"},
        {{"--note=false"}, NOTE, 0, "false"},
        {{"--nonote"}, NOTE, 0, "false"},
        {{"--host_name=a=b"}, HOST, 0, "a=b"},
        {{"--host_name="}, HOST, 0, ""},
        {{"--host_name", ""}, HOST, 0, ""},
        {{"--host_name=-x"}, HOST, 0, "-x"},
        {{"--host_name", "-"}, HOST, 0, "-"},
        {{"--host-name", "true"}, HOST, 0, "true"},
        {{"-wait", "500ms"}, WAIT, 500000000, "500ms"},
        {{"--which=3"}, WHICH, 3, "3"},
        {{"--which=-1"}, WHICH, UINT64_MAX, "-1"},
        {{"--which", "-1"}, WHICH, UINT64_MAX, "-1"},
        {{"--which=-2147483648"}, WHICH, 0 - (1ull << 31), "-2147483648"},
    };
    struct flags flags;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mc_error error = MC_ERROR_INIT;
        const struct flag_value *value;

        if (parse(&flags, cases[i].words, &error) != MC_OK)
            fail_msg("%s: %s", cases[i].words[0], error.message);
        value = &flags.values[cases[i].flag];
        assert_true(value->given);
        assert_int_equal(value->number, cases[i].number);
        assert_string_equal(value->text, cases[i].text);
        flags_clear(&flags);
    }
}

static void what_is_not_given_has_its_default(void **state) {
    static const char *const none[] = {NULL};
    struct flags flags;

    (void)state;
    assert_int_equal(parse(&flags, none, NULL), MC_OK);
    for (size_t i = 0; i < TABLE; i++)
        assert_false(flags.values[i].given);
    assert_int_equal(flags.values[ON].number, 1);
    assert_int_equal(flags.values[OFF].number, 0);
    assert_int_equal(flags.values[NUMBER].number, 7);
    assert_string_equal(flags.values[HOST].text, "here");
    assert_int_equal(flags.values[WAIT].number, 10000000000);
    assert_int_equal(flags.values[SIZE].number, 4ull << 30);
    assert_true(flags.values[RATIO].real > 0.49 && flags.values[RATIO].real < 0.51);
    flags_clear(&flags);
}

static void what_is_wrong_is_an_error_that_names_it(void **state) {
    static const struct {
        const char *words[4];
        const char *said;
    } cases[] = {
        {{"--numbr=5"}, "--numbr: unknown flag; is --number meant?"},
        {{"--hostname", "x"}, "--hostname: unknown flag; is --host_name meant?"},
        {{"--hlep"}, "--hlep: unknown flag; is --help meant?"},
        {{"--zzzzzzzz"}, "--zzzzzzzz: unknown flag; --help lists all"},
        {{"--nonumber"}, "--nonumber: unknown flag; is --number meant?"},
        {{"--noswitched_on=true"}, "--noswitched_on: unknown flag; is --switched_on meant?"},
        {{"--nonoswitched_on"}, "--nonoswitched_on: unknown flag; is --switched_on meant?"},
        {{"--=5"}, "--: unknown flag; --help lists all"},
        {{"---number=5"}, "---number: unknown flag; is --number meant?"},
        {{"--number"}, "--number: its value is missing; it takes a decimal number"},
        {{"--number", "--switched_on"}, "--number: its value is missing; it takes a decimal number"},
        {{"--host_name", "-number=5"}, "--host_name: its value is missing; it takes a text"},
        {{"--number="}, "--number: \"\" isn't a decimal number"},
        {{"--number=five"}, "--number: \"five\" isn't a decimal number"},
        {{"--number", "5x"}, "--number: \"5x\" isn't a decimal number"},
        {{"--number=-1"}, "--number: \"-1\" isn't a decimal number"},
        {{"--number", "-1"}, "--number: its value is missing; it takes a decimal number"},
        {{"--which=-2147483649"}, "--which: \"-2147483649\" isn't a decimal number, perhaps with a minus"},
        {{"--which=2147483648"}, "--which: \"2147483648\" isn't a decimal number, perhaps with a minus"},
        {{"--which=--1"}, "--which: \"--1\" isn't a decimal number, perhaps with a minus"},
        {{"--which", "--number=5"}, "--which: its value is missing; it takes a decimal number, perhaps with a minus"},
        {{"--switched_on=maybe"}, "--switched_on: \"maybe\" isn't true or false"},
        {{"--switched_on="}, "--switched_on: \"\" isn't true or false"},
        {{"--ratio=1.5"}, "--ratio: \"1.5\" isn't a number from 0 to 1"},
        {{"--help=maybe"}, "--help: \"maybe\" isn't true or false"},
        {{"--number=5", "stray"}, "\"stray\" isn't a flag, and nothing else is taken"},
        {{"--switched_on", "stray"}, "\"stray\" isn't a flag, and nothing else is taken"},
        {{"--noswitched_on", "true"}, "\"true\" isn't a flag, and nothing else is taken"},
        {{"--", "--number=5"}, "\"--number=5\" isn't a flag, and nothing else is taken"},
        {{"-"}, "\"-\" isn't a flag, and nothing else is taken"},
        {{""}, "\"\" isn't a flag, and nothing else is taken"},
        {{"a\nb"}, "\"a?b\" isn't a flag, and nothing else is taken"},
        {{"--flagfile"}, "--flagfile: its value is missing; it takes a text"},
    };
    struct flags flags;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mc_error error = MC_ERROR_INIT;

        if (parse(&flags, cases[i].words, &error) != MC_ERR_INVALID_ARGUMENT)
            fail_msg("%s was taken", cases[i].words[0]);
        assert_string_equal(error.message, cases[i].said);
        flags_clear(&flags);
    }
}

static void a_name_of_any_length_is_an_error_in_one_line(void **state) {
    struct mc_error error = MC_ERROR_INIT;
    const char *words[] = {NULL, NULL};
    struct flags flags;
    char name[5000];

    (void)state;
    memset(name, '-', 2);
    memset(name + 2, 'x', sizeof(name) - 3);
    name[sizeof(name) - 1] = '\0';
    words[0] = name;
    assert_int_equal(parse(&flags, words, &error), MC_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "unknown flag; --help lists all"));
    flags_clear(&flags);
}

/* ---- Settings of a file ---- */

static void a_setting_is_taken_unless_the_flag_was_given(void **state) {
    static const char *const words[] = {"--number=5", "--noswitched_on", NULL};
    struct mc_error error = MC_ERROR_INIT;
    struct flags flags;

    (void)state;
    assert_int_equal(parse(&flags, words, &error), MC_OK);
    assert_int_equal(flags_set(&flags, "number", "6", false, &error), MC_OK);
    assert_int_equal(flags_set(&flags, "switched_on", "true", false, &error), MC_OK);
    assert_int_equal(flags_set(&flags, "switched-off", "yes", false, &error), MC_OK);
    assert_int_equal(flags_set(&flags, "host_name", "there", false, &error), MC_OK);
    assert_int_equal(flags_set(&flags, "wait", "2m", true, &error), MC_OK);
    assert_int_equal(flags_set(&flags, "size", "65536", false, &error), MC_OK);
    assert_int_equal(flags.values[NUMBER].number, 5);
    assert_int_equal(flags.values[ON].number, 0);
    assert_int_equal(flags.values[OFF].number, 1);
    assert_string_equal(flags.values[HOST].text, "there");
    assert_int_equal(flags.values[WAIT].number, 120000000000);
    assert_int_equal(flags.values[SIZE].number, 65536);
    assert_true(flags.values[OFF].given);
    flags_clear(&flags);
}

static void a_setting_of_the_wrong_type_or_twice_is_an_error_also_where_the_flag_wins(void **state) {
    static const struct {
        const char *name;
        const char *text;
        bool quoted;
        const char *said;
    } cases[] = {
        {"numbr", "5", false, "\"numbr\" is no setting; is number meant?"},
        {"zzzzzzzz", "5", false, "\"zzzzzzzz\" is no setting"},
        {"flagfile", "x", false, "\"flagfile\" is no setting"},
        {"nonote", "x", false, "\"nonote\" is no setting; is note meant?"},
        {"number", "five", false, "number: five isn't a decimal number"},
        {"number", "5", true, "number: \"5\" isn't a decimal number"},
        {"number", "", false, "number: nothing isn't a decimal number"},
        {"switched_on", "1", false, "switched_on: 1 isn't true or false"},
        {"switched_on", "true", true, "switched_on: \"true\" isn't true or false"},
        {"ratio", "1.5", false, "ratio: 1.5 isn't a number from 0 to 1"},
        {"host_name", "5", false, "host_name: 5 isn't a text"},
        {"host_name", "-1.5e3", false, "host_name: -1.5e3 isn't a text"},
        {"host_name", "true", false, "host_name: true isn't a text"},
        {"host_name", "", false, "host_name: nothing isn't a text"},
        {"wait", "2 weeks", true, "wait: \"2 weeks\" isn't seconds, or a duration such as 500ms, 10s, 30m or 1h"},
    };
    static const char *const words[] = {"--number=5", NULL};
    struct flags flags;

    (void)state;
    assert_int_equal(parse(&flags, words, NULL), MC_OK);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mc_error error = MC_ERROR_INIT;

        if (i > 0 && strcmp(cases[i].name, cases[i - 1].name) == 0) {
            flags_clear(&flags);
            assert_int_equal(parse(&flags, words, NULL), MC_OK);
        }
        if (flags_set(&flags, cases[i].name, cases[i].text, cases[i].quoted, &error) != MC_ERR_INVALID_ARGUMENT)
            fail_msg("%s: %s was taken", cases[i].name, cases[i].text);
        if (strncmp(error.message, cases[i].said, strlen(cases[i].said)) != 0)
            fail_msg("%s", error.message);
    }
    flags_clear(&flags);
    assert_int_equal(parse(&flags, words, NULL), MC_OK);
    for (int32_t wanted = MC_OK, n = 0; n < 2; n++, wanted = MC_ERR_INVALID_ARGUMENT)
        assert_int_equal(flags_set(&flags, "number", "6", false, NULL), wanted);
    assert_int_equal(flags_set(&flags, "host_name", "127.0.0.1", false, NULL), MC_OK);
    flags_clear(&flags);
}

static void help_and_version_are_wishes_and_what_follows_does_not_count(void **state) {
    static const struct {
        const char *words[4];
        enum flags_wish wish;
    } cases[] = {
        {{"--help"}, FLAGS_HELP},
        {{"-help"}, FLAGS_HELP},
        {{"--help", "--bogus"}, FLAGS_HELP},
        {{"--number=5", "--help=true"}, FLAGS_HELP},
        {{"--version"}, FLAGS_VERSION},
        {{"-version", "--help"}, FLAGS_VERSION},
        {{"--help=false"}, FLAGS_RUN},
        {{"--nohelp"}, FLAGS_RUN},
        {{"--number=5"}, FLAGS_RUN},
    };
    struct flags flags;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(parse(&flags, cases[i].words, NULL), MC_OK);
        assert_int_equal(flags.wish, cases[i].wish);
        flags_clear(&flags);
    }
}

static void values_are_read_by_their_type(void **state) {
    static const struct {
        enum flag_type type;
        const char *text;
        uint64_t number;
    } cases[] = {
        {FLAG_BOOL, "true", 1},
        {FLAG_BOOL, "T", 1},
        {FLAG_BOOL, "Yes", 1},
        {FLAG_BOOL, "y", 1},
        {FLAG_BOOL, "1", 1},
        {FLAG_BOOL, "FALSE", 0},
        {FLAG_BOOL, "f", 0},
        {FLAG_BOOL, "no", 0},
        {FLAG_BOOL, "N", 0},
        {FLAG_BOOL, "0", 0},
        {FLAG_U64, "0", 0},
        {FLAG_U64, "007", 7},
        {FLAG_PORT, "0", 0},
        {FLAG_PORT, "65535", 65535},
        {FLAG_SIZE, "0", 0},
        {FLAG_SIZE, "65536", 65536},
        {FLAG_SIZE, "10B", 10},
        {FLAG_SIZE, "2k", 2048},
        {FLAG_SIZE, "2 KiB", 2048},
        {FLAG_SIZE, "512MB", 512ull << 20},
        {FLAG_SIZE, "4 GB", 4ull << 30},
        {FLAG_SIZE, "3gb", 3ull << 30},
        {FLAG_SIZE, "3.125GiB", 3355443200},
        {FLAG_SIZE, "1.5t", 3ull << 39},
        {FLAG_SIZE, "0.5", 0},
        {FLAG_SIZE, "16777215T", 16777215ull << 40},
        {FLAG_SIZE, "18446744073709551615", UINT64_MAX},
        {FLAG_SIZE, "4   GB", 4ull << 30},
        {FLAG_MS, "0", 0},
        {FLAG_MS, "999999", 999999000000},
        {FLAG_MS, "5000ms", 5000000000},
        {FLAG_MS, "5s", 5000000000},
        {FLAG_MS, "30m", 1800000000000},
        {FLAG_MS, "1h", 3600000000000},
        {FLAG_SECONDS, "30", 30000000000},
        {FLAG_SECONDS, "30ms", 30000000},
        {FLAG_SECONDS, "30s", 30000000000},
        {FLAG_SECONDS, "18446744073", 18446744073000000000ull},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct flag_value value = {.number = 99};

        if (!flag_value_read(cases[i].type, cases[i].text, &value))
            fail_msg("\"%s\" isn't read", cases[i].text);
        if (value.number != cases[i].number)
            fail_msg("\"%s\" is read as %llu", cases[i].text, (unsigned long long)value.number);
    }
}

static void numbers_with_a_point_are_read_exactly(void **state) {
    static const struct {
        const char *text;
        double real;
    } cases[] = {{"0", 0}, {"1", 1}, {"0.05", 0.05}, {".5", 0.5}, {"1.", 1}, {"5e-1", 0.5}, {"1E0", 1}, {"0.90", 0.9}};
    struct flag_value value;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_true(flag_value_read(FLAG_RATIO, cases[i].text, &value));
        assert_memory_equal(&value.real, &cases[i].real, sizeof(double));
        assert_true(flag_value_read(FLAG_DOUBLE, cases[i].text, &value));
        assert_memory_equal(&value.real, &cases[i].real, sizeof(double));
    }
}

static void what_is_no_value_of_the_type_is_refused_and_changes_nothing(void **state) {
    static const struct {
        enum flag_type type;
        const char *texts[20];
    } cases[] = {
        {FLAG_BOOL, {"", "2", "on", "off", "tru", "yess", " true", "true "}},
        {FLAG_U64,
         {"", "-1", "+1", " 1", "1 ", "0x10", "1.0", "1e3", "18446744073709551616", "99999999999999999999999999"}},
        {FLAG_PORT, {"", "65536", "-1", "99999999999999999999", "http"}},
        {FLAG_SIZE,
         {"", "GB", " 4GB", "4GB ", "4 G B", "4X", "4GBB", "-4GB", "1..5GB", "1.GB", "1.5.5GB", "4\tGB", "16777216T",
          "18446744073709551616", "1.0123456789GB", "18446744073709551615.5k", "1e3"}},
        {FLAG_MS,
         {"", "s", "-1", "5 s", "5S", "5sec", "1.5s", "5us", "18446744073710", "5124096h", "99999999999999999999ms"}},
        {FLAG_SECONDS, {"", "18446744074", "-1", "m"}},
        {FLAG_DOUBLE,
         {"", "-1", "+1", "nan", "inf", "0x1", "1.5.5", "1e", "e5", "1e999", " 1", "1 ", ".", "1-", "1,5"}},
        {FLAG_RATIO, {"", "1.01", "2", "-0.1", "nan", "5e0"}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t j = 0; j < COUNT(cases[i].texts) && cases[i].texts[j] != NULL; j++) {
            struct flag_value value = {.number = 99, .real = 99};

            if (flag_value_read(cases[i].type, cases[i].texts[j], &value))
                fail_msg("\"%s\" is read as %llu", cases[i].texts[j], (unsigned long long)value.number);
            assert_int_equal(value.number, 99);
            assert_true(value.real > 98);
        }
}

static void a_flagfile_has_a_flag_a_line_and_the_last_of_several_wins(void **state) {
    char *path = file_with("# words\n\n  --number=5 \r\n-host_name=a b\n--switched_off\n--noswitched_on");
    const char *words[] = {"--number=1", "--flagfile", path, "--host_name=c", NULL};
    struct mc_error error = MC_ERROR_INIT;
    struct flags flags;

    (void)state;
    if (parse(&flags, words, &error) != MC_OK)
        fail_msg("%s", error.message);
    assert_int_equal(flags.values[NUMBER].number, 5);
    assert_string_equal(flags.values[HOST].text, "c");
    assert_int_equal(flags.values[OFF].number, 1);
    assert_int_equal(flags.values[ON].number, 0);
    flags_clear(&flags);
    drop_file(path);
}

static void a_flagfile_that_is_wrong_is_an_error_in_words(void **state) {
    static const struct {
        const char *text;
        const char *said;
    } cases[] = {
        {"--number=1\n--numbr=5\n", "--numbr: unknown flag; is --number meant?"},
        {"number=5\n", "\"number=5\" in a flagfile isn't a flag"},
        {"--number\n5\n", "--number: its value is missing; it takes a decimal number"},
        {"--number=x\n", "--number: \"x\" isn't a decimal number"},
    };
    const char *words[] = {"--flagfile", NULL, NULL};
    struct flags flags;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mc_error error = MC_ERROR_INIT;
        char *path = file_with(cases[i].text);

        words[1] = path;
        assert_int_equal(parse(&flags, words, &error), MC_ERR_INVALID_ARGUMENT);
        assert_string_equal(error.message, cases[i].said);
        flags_clear(&flags);
        drop_file(path);
    }
}

static void a_flagfile_that_is_not_there_or_names_itself_is_an_error(void **state) {
    static const char *const missing[] = {"--flagfile=/nowhere/at/all", NULL};
    struct mc_error error = MC_ERROR_INIT;
    char *path = file_with("");
    const char *words[] = {"--flagfile", path, NULL};
    FILE *file = fopen(path, "w");
    struct flags flags;

    (void)state;
    assert_non_null(file);
    fprintf(file, "--flagfile=%s\n", path);
    fclose(file);
    assert_int_equal(parse(&flags, words, &error), MC_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "files name each other too deep"));
    flags_clear(&flags);
    drop_file(path);
    assert_int_equal(parse(&flags, missing, &error), MC_ERR_SYSTEM);
    assert_string_equal(error.message, "--flagfile: \"/nowhere/at/all\": No such file or directory");
    flags_clear(&flags);
}

/* What `write` writes. */
static void assert_written(const struct flags *flags, const char *wanted) {
    char text[4096] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");

    assert_non_null(out);
    flags_warn(flags, "program", out);
    fclose(out);
    assert_string_equal(text, wanted);
}

static void flags_without_an_effect_are_named_in_one_line(void **state) {
    static const char *const some[] = {"--ratio=0.1", "--number=5", "--switched_off", NULL};
    static const char *const one[] = {"--size=1", NULL};
    static const char *const none[] = {"--number=5", NULL};
    struct flags flags;

    (void)state;
    assert_int_equal(parse(&flags, some, NULL), MC_OK);
    assert_written(&flags, "program: warning: accepted without an effect: --switched_off, --ratio\n");
    flags_clear(&flags);
    assert_int_equal(parse(&flags, one, NULL), MC_OK);
    assert_written(&flags, "program: warning: accepted without an effect: --size\n");
    flags_clear(&flags);
    assert_int_equal(parse(&flags, none, NULL), MC_OK);
    assert_written(&flags, "");
    flags_clear(&flags);
}

static void help_names_each_flag_with_its_words_and_default(void **state) {
    char text[8192] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");

    (void)state;
    assert_non_null(out);
    flags_help(table, TABLE, "program", "does things", out);
    fclose(out);
    assert_non_null(strstr(text, "program " MOONCAKE_VERSION " - does things\n"));
    assert_non_null(strstr(text, "  --number=N\n      words (default 7)\n"));
    assert_non_null(strstr(text, "  --[no]switched_on\n      words (default true)\n"));
    assert_non_null(strstr(text, "  --host_name=TEXT\n      words (default \"here\")\n"));
    assert_true(strstr(text, "--[no]switched_off") > strstr(text, "\nAccepted without an effect:\n"));
}

#define FLAG(name, type, initial, works, words) {#name, FLAG_##type, initial, FLAG_##works, words},
static const struct flag master_flags[] = {
#include "programs/master_flags.def"
};
static const struct flag client_flags[] = {
#include "programs/client_flags.def"
};
static const struct flag bench_flags[] = {
#include "programs/bench_flags.def"
};
#undef FLAG

static void assert_sound(const struct flag *flags, size_t count) {
    struct flag_value value;

    for (size_t i = 0; i < count; i++) {
        if (!flag_value_read(flags[i].type, flags[i].initial, &value))
            fail_msg("--%s: its default is no value of its type", flags[i].name);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(flags[i].name, flags[j].name);
        for (size_t j = 0; j < count; j++) /* --nox is never a flag of its own too */
            assert_false(flags[j].type == FLAG_BOOL && strncmp(flags[i].name, "no", 2) == 0 &&
                         strcmp(flags[i].name + 2, flags[j].name) == 0);
        assert_true(strlen(flags[i].words) > 0);
        assert_null(strchr(flags[i].words, '|'));
    }
}

static void the_programs_tables_are_sound(void **state) {
    (void)state;
    assert_sound(master_flags, COUNT(master_flags));
    assert_sound(client_flags, COUNT(client_flags));
    assert_sound(bench_flags, COUNT(bench_flags));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_sets_the_flag),
        cmocka_unit_test(what_is_not_given_has_its_default),
        cmocka_unit_test(what_is_wrong_is_an_error_that_names_it),
        cmocka_unit_test(a_name_of_any_length_is_an_error_in_one_line),
        cmocka_unit_test(a_setting_is_taken_unless_the_flag_was_given),
        cmocka_unit_test(a_setting_of_the_wrong_type_or_twice_is_an_error_also_where_the_flag_wins),
        cmocka_unit_test(help_and_version_are_wishes_and_what_follows_does_not_count),
        cmocka_unit_test(values_are_read_by_their_type),
        cmocka_unit_test(numbers_with_a_point_are_read_exactly),
        cmocka_unit_test(what_is_no_value_of_the_type_is_refused_and_changes_nothing),
        cmocka_unit_test(a_flagfile_has_a_flag_a_line_and_the_last_of_several_wins),
        cmocka_unit_test(a_flagfile_that_is_wrong_is_an_error_in_words),
        cmocka_unit_test(a_flagfile_that_is_not_there_or_names_itself_is_an_error),
        cmocka_unit_test(flags_without_an_effect_are_named_in_one_line),
        cmocka_unit_test(help_names_each_flag_with_its_words_and_default),
        cmocka_unit_test(the_programs_tables_are_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
