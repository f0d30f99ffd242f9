/* metadata/http.c - the directory that a metadata server keeps.
 *
 * Each name is a key of the server, `mooncake/[CLUSTER/]rpc_meta/<name>`, and its value a JSON object with the members
 * "ip_or_host_name" and "rpc_port"; GET, PUT and DELETE of `?key=<key>`, where 200 alone is success. Of what the server
 * answers nothing is believed but a host and a port that have the right form.
 *
 * Threads: any; the struct is immutable once it is open.
 */
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/status.h"
#include "base/text.h"
#include "base/writer.h"
#include "metadata/directory.h"
#include "net/http.h"
#include "os/jansson.h"

#define WHERE_MAX 1024u
#define CLUSTER_MAX 128u
#define URL_SIZE 4096u  /* the longest address, and the longest key with each byte as %XX */
#define BODY_SIZE 1024u /* of what is published */
#define HOST_MAX (MC_ADDRESS_MAX - sizeof("[]:65535"))

#define CODE_OK 200
#define CODE_REFUSED 400
#define CODE_NOT_FOUND 404
#define CODE_SERVER 500

struct http_directory {
    struct directory directory;
    char cluster[CLUSTER_MAX + 1];
    char where[WHERE_MAX + 1];
};

static struct http_directory *http_of(struct directory *directory) {
    return (struct http_directory *)(void *)directory;
}

static const char *directory_unavailable(void) {
    const char *reason = http_unavailable();

    return reason != NULL ? reason : jansson_unavailable();
}

/* ---- Opening ---- */

static bool is_printable(const char *text, const char *but) {
    for (; *text != '\0'; text++)
        if (*text <= ' ' || *text > '~' || strchr(but, *text) != NULL)
            return false;
    return true;
}

/* What is wrong with "http[s]://host[:port][/path]", or NULL. */
static const char *check_url(const char *where) {
    const char *host = strstr(where, "://") + 3;
    size_t length = strcspn(host, "/?#");
    struct address_text parts;
    char authority[ADDRESS_TEXT_MAX];

    if (strlen(where) > WHERE_MAX)
        return "it is too long";
    if (memchr(host, '@', length) != NULL)
        return "names and passwords in it aren't supported";
    if (length >= sizeof(authority))
        return "the host is too long";
    memcpy(authority, host, length);
    authority[length] = '\0';
    if (address_parse(authority, &parts, NULL) != MC_OK || parts.port == 0)
        return "host or port is malformed";
    if (!is_printable(host + length, "?#\"<>\\^`{|}"))
        return "its path must be plain, without ? and #";
    return NULL;
}

static int32_t http_open(const char *where, struct directory **ret_directory, struct mc_error *error) {
    const char *wrong = check_url(where);
    const char *cluster = config_text(SETTING_METADATA_CLUSTER, NULL);
    const char *reason;
    struct http_directory *http;

    if (wrong != NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "directory \"%.100s\": %s",
                          strchr(where, '@') != NULL ? "http" : where, wrong);
    if (cluster != NULL && (strlen(cluster) > CLUSTER_MAX || !is_printable(cluster, "")))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0,
                          "MC_METADATA_CLUSTER_ID must have at most %u printable bytes, and no space", CLUSTER_MAX);
    reason = directory_unavailable();
    if (reason != NULL)
        return status_set(error, MC_ERR_NOT_SUPPORTED, 0, "directories by http need libcurl and libjansson: %s",
                          reason);
    http = calloc(1, sizeof(*http));
    if (http == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    text_copy(http->where, sizeof(http->where), where);
    text_copy(http->cluster, sizeof(http->cluster), cluster != NULL ? cluster : "");
    http->directory = (struct directory){.ops = &directory_http, .keeps_names = true};
    *ret_directory = &http->directory;
    return MC_OK;
}

static void http_close(struct directory *directory) {
    free(http_of(directory));
}

/* ---- Requests ---- */

/* The URL of a name's key. */
static void make_url(const struct http_directory *http, const char *name, char url[URL_SIZE]) {
    bool has_path = strchr(strstr(http->where, "://") + 3, '/') != NULL;
    struct writer writer;

    writer_init(&writer, url, URL_SIZE);
    writer_print(&writer, "%s%s?key=", http->where, has_path ? "" : "/");
    if (strchr(name, '/') == NULL) {
        http_escape(&writer, "mooncake/");
        http_escape(&writer, http->cluster);
        http_escape(&writer, http->cluster[0] != '\0' ? "/rpc_meta/" : "rpc_meta/");
    }
    http_escape(&writer, name);
}

/* One request about a name; MC_OK for 200. MC_ERR_NAME_NOT_FOUND for 404. */
static int32_t ask(struct http_directory *http, const char *method, const char *name, const char *body,
                   uint64_t deadline, struct http_answer *answer, struct mc_error *error) {
    struct mc_error cause = MC_ERROR_INIT;
    char url[URL_SIZE];
    int32_t status;

    make_url(http, name, url);
    status = http_request(method, url, body, deadline, answer, &cause);
    if (status != MC_OK)
        return status_set(error, status, 0, "directory %.80s: %s", http->where, cause.message);
    if (answer->code == CODE_OK)
        return MC_OK;
    if (answer->code == CODE_NOT_FOUND)
        return status_set(error, MC_ERR_NAME_NOT_FOUND, 0, "directory %.80s has no engine \"%.100s\"", http->where,
                          name);
    /* A server in trouble may be well again later. */
    return status_set(error, answer->code >= CODE_SERVER ? MC_ERR_UNREACHABLE : MC_ERR_PROTOCOL, 0,
                      "directory %.80s answers %s of \"%.64s\" with %ld", http->where, method, name, answer->code);
}

/* Too large for a stack. */
static struct http_answer *new_answer(struct mc_error *error) {
    struct http_answer *answer = malloc(sizeof(*answer));

    if (answer == NULL)
        (void)status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    return answer;
}

/* ---- Values ---- */

/* What is wrong with the value, or NULL and its address. */
static const char *parse_value(const struct http_answer *answer, char ret_address[ADDRESS_TEXT_MAX]) {
    struct json_value *value = jansson.loadb(answer->body, answer->length, JANSSON_REJECT_DUPLICATES, NULL);
    struct address_text parts;
    const char *wrong = NULL, *host;
    size_t length;
    long long port;

    if (value == NULL)
        return "is no JSON";
    if (jansson.unpack_ex(value, NULL, 0, "{s:s%,s:I}", "ip_or_host_name", &host, &length, "rpc_port", &port) != 0)
        wrong = "has no ip_or_host_name and rpc_port";
    else if (port < 1 || port > UINT16_MAX)
        wrong = "has a port that isn't from 1 to 65535";
    else if (length > HOST_MAX || strlen(host) != length || address_parse(host, &parts, NULL) != MC_OK ||
             parts.port >= 0)
        wrong = "has a malformed host";
    else if (address_text_is_any(parts.host))
        wrong = "has a host at which nobody can be reached";
    else
        address_join(parts.host, (uint16_t)port, ret_address);
    jansson.free_root(value);
    return wrong;
}

static int32_t http_find(struct directory *directory, const char *name, uint64_t deadline,
                         char ret_address[ADDRESS_TEXT_MAX], struct mc_error *error) {
    struct http_directory *http = http_of(directory);
    struct http_answer *answer = new_answer(error);
    const char *wrong = NULL;
    int32_t status;

    if (answer == NULL)
        return MC_ERR_NO_MEMORY;
    status = ask(http, "GET", name, NULL, deadline, answer, error);
    if (status == MC_OK)
        wrong = parse_value(answer, ret_address);
    if (wrong != NULL)
        status = status_set(error, MC_ERR_PROTOCOL, 0, "directory %.80s: what it has of \"%.64s\" %s", http->where,
                            name, wrong);
    free(answer);
    return status;
}

/* Some servers refuse another address for a name that they have. The one before may be that of a process that was
 * killed, and the name is its user's: it gives way. */
static int32_t put(struct http_directory *http, const char *name, const char *body, uint64_t deadline,
                   struct http_answer *answer, struct mc_error *error) {
    int32_t status = ask(http, "PUT", name, body, deadline, answer, error);

    if (status != MC_ERR_PROTOCOL || answer->code != CODE_REFUSED)
        return status;
    status = ask(http, "DELETE", name, NULL, deadline, answer, error);
    if (status == MC_OK || status == MC_ERR_NAME_NOT_FOUND)
        status = ask(http, "PUT", name, body, deadline, answer, error);
    return status;
}

static int32_t http_publish(struct directory *directory, const char *name, const char *address, uint64_t deadline,
                            struct mc_error *error) {
    struct http_answer *answer;
    struct address_text parts;
    struct writer writer;
    char body[BODY_SIZE];
    int32_t status = address_parse(address, &parts, error);

    if (status == MC_OK && parts.port < 1)
        status = status_set(error, MC_ERR_ADDRESS, 0, "\"%.120s\" has no port", address);
    if (status != MC_OK)
        return status;
    writer_init(&writer, body, sizeof(body));
    writer_print(&writer, "{\"ip_or_host_name\":");
    writer_json_string(&writer, parts.host);
    writer_print(&writer, ",\"rpc_port\":%d}", (int)parts.port);
    answer = new_answer(error);
    if (answer == NULL)
        return MC_ERR_NO_MEMORY;
    status = put(http_of(directory), name, body, deadline, answer, error);
    free(answer);
    /* A server that doesn't know the way to its keys, not a name. */
    return status == MC_ERR_NAME_NOT_FOUND
               ? status_set(error, MC_ERR_PROTOCOL, 0, "directory %.80s answers PUT with 404: is its path right?",
                            http_of(directory)->where)
               : status;
}

/* The server can't compare and remove in one step: whoever publishes the name between the two is removed. */
static int32_t http_withdraw(struct directory *directory, const char *name, const char *address, uint64_t deadline,
                             struct mc_error *error) {
    struct http_answer *answer;
    struct address_text parts;
    char found[ADDRESS_TEXT_MAX], own[ADDRESS_TEXT_MAX];
    int32_t status = address_parse(address, &parts, error);

    if (status != MC_OK)
        return status;
    address_join(parts.host, (uint16_t)(parts.port > 0 ? parts.port : 0), own);
    status = http_find(directory, name, deadline, found, error);
    if (status != MC_OK || strcmp(found, own) != 0)
        return status == MC_ERR_NAME_NOT_FOUND ? MC_OK : status;
    answer = new_answer(error);
    if (answer == NULL)
        return MC_ERR_NO_MEMORY;
    status = ask(http_of(directory), "DELETE", name, NULL, deadline, answer, error);
    free(answer);
    return status == MC_ERR_NAME_NOT_FOUND ? MC_OK : status;
}

const struct directory_ops directory_http = {
    .unavailable = directory_unavailable,
    .open = http_open,
    .close = http_close,
    .publish = http_publish,
    .withdraw = http_withdraw,
    .find = http_find,
};
