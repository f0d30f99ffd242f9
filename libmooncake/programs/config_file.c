/* programs/config_file.c - reads a file of settings, by libyaml. Owns nothing beyond a call; any thread. */
#include "programs/config_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/status.h"

#define FILE_MAX (1u << 20)
#define PATH_SHOWN "%.120s"

struct reading {
    const char *path;
    struct flags *flags;
    struct mc_error *error;
    const unsigned char *bytes; /* of the file */
    size_t length;
    yaml_parser_t parser;
    yaml_event_t event; /* the last one; to be deleted before the next */
};

/* ---- Errors ---- */

static int32_t wrong(struct reading *reading, size_t line, const char *words) {
    return status_set(reading->error, MC_ERR_INVALID_ARGUMENT, 0, PATH_SHOWN ":%zu: %s", reading->path, line, words);
}

static size_t line_at(const struct reading *reading, size_t offset) {
    size_t line = 1;

    for (size_t i = 0; i < offset && i < reading->length; i++)
        line += reading->bytes[i] == '\n';
    return line;
}

/* It can't be read on. */
static int32_t malformed(struct reading *reading) {
    const yaml_parser_t *parser = &reading->parser;
    const char *problem = parser->problem != NULL ? parser->problem : "malformed";
    size_t line = parser->problem_mark.line + 1;

    if (parser->error == YAML_MEMORY_ERROR)
        return status_set(reading->error, MC_ERR_NO_MEMORY, 0, "out of memory");
    if (parser->error == YAML_READER_ERROR) /* what is no text; the mark is where it was understood last */
        line = line_at(reading, parser->problem_offset);
    return wrong(reading, line, problem);
}

static size_t line_of(const struct reading *reading) {
    return reading->event.start_mark.line + 1;
}

/* ---- Events ---- */

/* The next event. MC_ERR_INVALID_ARGUMENT, MC_ERR_NO_MEMORY. */
static int32_t next(struct reading *reading) {
    yaml_event_delete(&reading->event);
    return yaml_parser_parse(&reading->parser, &reading->event) ? MC_OK : malformed(reading);
}

/* The text of the event, which is a scalar; NULL if it isn't one, or has a NUL. */
static const char *scalar(const struct reading *reading) {
    const char *text = (const char *)reading->event.data.scalar.value;

    return reading->event.type == YAML_SCALAR_EVENT && strlen(text) == reading->event.data.scalar.length ? text : NULL;
}

/* A name was read; its value follows. */
static int32_t take_value(struct reading *reading, const char *name, size_t line) {
    struct mc_error error = MC_ERROR_INIT;
    int32_t status = next(reading);
    const char *text;
    bool quoted;

    if (status != MC_OK)
        return status;
    text = scalar(reading);
    if (text == NULL) {
        status_set(&error, MC_ERR_INVALID_ARGUMENT, 0, "%.64s: one plain value is needed", name);
        return wrong(reading, line, error.message);
    }
    quoted = reading->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE || !reading->event.data.scalar.plain_implicit;
    status = flags_set(reading->flags, name, text, quoted, &error);
    return status == MC_OK ? MC_OK : wrong(reading, line, error.message);
}

/* The mapping's start was read. */
static int32_t take_settings(struct reading *reading) {
    int32_t status;

    while ((status = next(reading)) == MC_OK && reading->event.type != YAML_MAPPING_END_EVENT) {
        const char *text = scalar(reading);
        size_t line = line_of(reading);
        char *name;

        if (text == NULL)
            return wrong(reading, line, "the name of a setting is needed here");
        name = strdup(text);
        if (name == NULL)
            return status_set(reading->error, MC_ERR_NO_MEMORY, 0, "out of memory");
        status = take_value(reading, name, line);
        free(name);
        if (status != MC_OK)
            return status;
    }
    return status;
}

/* One document, which is a mapping, or nothing. */
static int32_t take_all(struct reading *reading) {
    int32_t status = next(reading); /* the stream's start */

    if (status == MC_OK)
        status = next(reading);
    if (status != MC_OK || reading->event.type == YAML_STREAM_END_EVENT)
        return status;
    status = next(reading);
    if (status == MC_OK && reading->event.type != YAML_MAPPING_START_EVENT)
        return wrong(reading, line_of(reading), "settings are needed, each a name, a colon and a value");
    if (status == MC_OK)
        status = take_settings(reading);
    if (status == MC_OK)
        status = next(reading); /* the document's end */
    if (status == MC_OK)
        status = next(reading);
    if (status == MC_OK && reading->event.type != YAML_STREAM_END_EVENT)
        return wrong(reading, line_of(reading), "there is a second document");
    return status;
}

/* ---- The file ---- */

static int32_t load(const char *path, unsigned char *bytes, size_t *ret_length, struct mc_error *error) {
    FILE *file = fopen(path, "re");
    int32_t status = MC_OK;

    if (file == NULL)
        return status_set(error, MC_ERR_SYSTEM, errno, PATH_SHOWN ": %m", path);
    *ret_length = fread(bytes, 1, FILE_MAX + 1, file);
    if (ferror(file))
        status = status_set(error, MC_ERR_SYSTEM, errno, PATH_SHOWN ": %m", path);
    else if (*ret_length > FILE_MAX)
        status = status_set(error, MC_ERR_INVALID_ARGUMENT, 0, PATH_SHOWN " has more than %u bytes", path, FILE_MAX);
    (void)fclose(file);
    return status;
}

static int32_t parse(struct reading *reading) {
    int32_t status;

    if (!yaml_parser_initialize(&reading->parser))
        return status_set(reading->error, MC_ERR_NO_MEMORY, 0, "out of memory");
    yaml_parser_set_input_string(&reading->parser, reading->bytes, reading->length);
    status = take_all(reading);
    yaml_event_delete(&reading->event);
    yaml_parser_delete(&reading->parser);
    return status;
}

int32_t config_file_read(const char *path, struct flags *flags, struct mc_error *error) {
    struct reading reading = {.path = path, .flags = flags, .error = error};
    unsigned char *bytes = malloc(FILE_MAX + 1);
    int32_t status;

    if (bytes == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    reading.bytes = bytes;
    status = load(path, bytes, &reading.length, error);
    if (status == MC_OK)
        status = parse(&reading);
    free(bytes);
    return status;
}
