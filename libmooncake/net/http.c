/* net/http.c - HTTP by libcurl.
 *
 * Each request has a handle of its own, which ends with it: nothing is shared between threads, and no connection stays
 * open. The headers of libcurl aren't needed to build: the numbers below are its ABI, which has been stable for as long
 * as its soname.
 *
 * Threads: any. libcurl's own ones (for the resolver) inherit a mask that blocks all signals, and so does OpenSSL's
 * write to a closed socket find SIGPIPE blocked.
 */
#include "net/http.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "os/dynlib.h"

#define ERROR_SIZE 256 /* what the library wants */

enum option {
    OPTION_FOLLOW_LOCATION = 52,
    OPTION_HTTP_VERSION = 84,
    OPTION_NO_SIGNAL = 99,
    OPTION_TIMEOUT_MS = 155,
    OPTION_CONNECT_TIMEOUT_MS = 156,
    OPTION_PROTOCOLS = 181,
    OPTION_HTTP09_ALLOWED = 285,
    OPTION_WRITE_DATA = 10001,
    OPTION_URL = 10002,
    OPTION_ERROR_BUFFER = 10010,
    OPTION_POST_FIELDS = 10015,
    OPTION_USER_AGENT = 10018,
    OPTION_HEADERS = 10023,
    OPTION_CUSTOM_REQUEST = 10036,
    OPTION_NO_PROXY = 10177,
    OPTION_WRITE_FUNCTION = 20011,
    OPTION_OPEN_SOCKET_FUNCTION = 20163,
};

enum { GLOBAL_ALL = 3, HTTP_1_1 = 2, PROTOCOLS_HTTP = 3, INFO_RESPONSE_CODE = 0x200002 };

enum result {
    RESULT_OK = 0,
    RESULT_UNSUPPORTED_PROTOCOL = 1,
    RESULT_WEIRD_REPLY = 8,
    RESULT_WRITE_ERROR = 23,
    RESULT_NO_MEMORY = 27,
    RESULT_TIMEOUT = 28,
};

struct easy;
struct headers;

/* As the library declares it. */
struct socket_address {
    int family;
    int kind;
    int protocol;
    unsigned int length;
    struct sockaddr address;
};

static struct {
    int (*global_init)(long flags);
    struct easy *(*easy_init)(void);
    int (*easy_setopt)(struct easy *easy, int option, ...);
    int (*easy_perform)(struct easy *easy);
    int (*easy_getinfo)(struct easy *easy, int info, ...);
    void (*easy_cleanup)(struct easy *easy);
    const char *(*easy_strerror)(int result);
    struct headers *(*slist_append)(struct headers *headers, const char *line);
    void (*slist_free_all)(struct headers *headers);
} curl;

static const struct dynlib_symbol symbols[] = {{"curl_global_init", (void **)(void *)&curl.global_init},
                                               {"curl_easy_init", (void **)(void *)&curl.easy_init},
                                               {"curl_easy_setopt", (void **)(void *)&curl.easy_setopt},
                                               {"curl_easy_perform", (void **)(void *)&curl.easy_perform},
                                               {"curl_easy_getinfo", (void **)(void *)&curl.easy_getinfo},
                                               {"curl_easy_cleanup", (void **)(void *)&curl.easy_cleanup},
                                               {"curl_easy_strerror", (void **)(void *)&curl.easy_strerror},
                                               {"curl_slist_append", (void **)(void *)&curl.slist_append},
                                               {"curl_slist_free_all", (void **)(void *)&curl.slist_free_all},
                                               {NULL, NULL}};
static const char *const sonames[] = {"libcurl.so.4", "libcurl-gnutls.so.4", NULL};
static struct dynlib library = {.sonames = sonames, .symbols = symbols, .once = PTHREAD_ONCE_INIT};

static pthread_once_t init_once = PTHREAD_ONCE_INIT;
static int init_result;

/* Older ones aren't safe to be initialised by two threads. */
static void init(void) {
    init_result = curl.global_init(GLOBAL_ALL);
}

const char *http_unavailable(void) {
    return dynlib_open(&library);
}

void http_escape(struct writer *writer, const char *string) {
    for (; *string != '\0'; string++) {
        unsigned char byte = (unsigned char)*string;
        bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
                     byte == '-' || byte == '.' || byte == '_' || byte == '~';

        writer_print(writer, plain ? "%c" : "%%%02X", byte);
    }
}

/* ---- What the library calls ---- */

/* Takes no more than there is room for; less than it was given ends the request. */
static size_t take_body(const char *bytes, size_t size, size_t count, void *context) {
    struct http_answer *answer = context;
    size_t length = size * count;

    if (length > HTTP_BODY_MAX - answer->length)
        return 0;
    memcpy(answer->body + answer->length, bytes, length);
    answer->length += length;
    return length;
}

static int open_socket(void *context, int purpose, const struct socket_address *address) {
    (void)context;
    (void)purpose;
    return socket(address->family, address->kind | SOCK_CLOEXEC, address->protocol);
}

/* ---- Signals ---- */

struct signals {
    sigset_t former;
    bool pipe_pending;
};

static bool pipe_is_pending(void) {
    sigset_t pending;

    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

static void block_signals(struct signals *signals) {
    sigset_t all;

    sigfillset(&all);
    signals->pipe_pending = pipe_is_pending();
    (void)pthread_sigmask(SIG_SETMASK, &all, &signals->former);
}

/* A SIGPIPE that came meanwhile is the request's own: nobody else is to hear of it. */
static void unblock_signals(const struct signals *signals) {
    const struct timespec at_once = {0, 0};
    sigset_t pipe;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (!signals->pipe_pending && pipe_is_pending())
        (void)sigtimedwait(&pipe, NULL, &at_once);
    (void)pthread_sigmask(SIG_SETMASK, &signals->former, NULL);
}

/* ---- Requests ---- */

/* Is the URL's host this one? Proxies are for others, whatever the environment says. */
static bool is_loopback(const char *url) {
    const char *host = strstr(url, "://");
    static const char *const prefixes[] = {"127.", "localhost/", "localhost:", "[::1]"};

    for (size_t i = 0; host != NULL && i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncasecmp(host + 3, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static bool set_options(struct easy *easy, const char *method, const char *url, const char *body, uint64_t deadline,
                        struct http_answer *answer, char *words) {
    uint64_t now = clock_now();
    long milliseconds = clock_poll_ms(deadline, now, 3600000);
    int bad = 0;

    /* 0 would be no limit. */
    milliseconds = milliseconds > 0 ? milliseconds : 1;
    bad |= curl.easy_setopt(easy, OPTION_NO_SIGNAL, 1L);
    bad |= curl.easy_setopt(easy, OPTION_URL, url);
    bad |= curl.easy_setopt(easy, OPTION_CUSTOM_REQUEST, method);
    bad |= curl.easy_setopt(easy, OPTION_HTTP_VERSION, (long)HTTP_1_1);
    bad |= curl.easy_setopt(easy, OPTION_FOLLOW_LOCATION, 0L);
    bad |= curl.easy_setopt(easy, OPTION_TIMEOUT_MS, milliseconds);
    bad |= curl.easy_setopt(easy, OPTION_CONNECT_TIMEOUT_MS, milliseconds);
    bad |= curl.easy_setopt(easy, OPTION_USER_AGENT, "libmooncake");
    bad |= curl.easy_setopt(easy, OPTION_ERROR_BUFFER, words);
    bad |= curl.easy_setopt(easy, OPTION_WRITE_FUNCTION, take_body);
    bad |= curl.easy_setopt(easy, OPTION_WRITE_DATA, answer);
    bad |= curl.easy_setopt(easy, OPTION_OPEN_SOCKET_FUNCTION, open_socket);
    if (is_loopback(url))
        bad |= curl.easy_setopt(easy, OPTION_NO_PROXY, "*");
    if (body != NULL)
        bad |= curl.easy_setopt(easy, OPTION_POST_FIELDS, body);
    /* Second fences, which not every version of the library knows. */
    (void)curl.easy_setopt(easy, OPTION_PROTOCOLS, (long)PROTOCOLS_HTTP);
    (void)curl.easy_setopt(easy, OPTION_HTTP09_ALLOWED, 0L);
    return bad == 0;
}

/* What a failure of the library is to us. */
static int32_t explain(int result, bool tls, const char *words, struct mc_error *error) {
    if (words[0] == '\0')
        words = curl.easy_strerror(result);
    switch (result) {
    case RESULT_NO_MEMORY:
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    case RESULT_TIMEOUT:
        return status_set(error, MC_ERR_UNREACHABLE, 0, "no whole answer in time");
    case RESULT_WRITE_ERROR:
        return status_set(error, MC_ERR_PROTOCOL, 0, "the answer has more than %u bytes", HTTP_BODY_MAX);
    case RESULT_WEIRD_REPLY:
        return status_set(error, MC_ERR_PROTOCOL, 0, "%s", words);
    case RESULT_UNSUPPORTED_PROTOCOL: /* a library without TLS; else an answer of HTTP 0.9, which may be anything */
        return status_set(error, tls ? MC_ERR_NOT_SUPPORTED : MC_ERR_PROTOCOL, 0, "%s", words);
    default:
        return status_set(error, MC_ERR_UNREACHABLE, 0, "%s", words);
    }
}

int32_t http_request(const char *method, const char *url, const char *body, uint64_t deadline,
                     struct http_answer *answer, struct mc_error *error) {
    const char *reason = http_unavailable();
    char words[ERROR_SIZE] = "";
    struct headers *headers = NULL;
    struct signals signals;
    struct easy *easy;
    int result = RESULT_NO_MEMORY;
    int32_t status = MC_OK;

    if (reason != NULL)
        return status_set(error, MC_ERR_NOT_SUPPORTED, 0, "%s", reason);
    (void)pthread_once(&init_once, init);
    if (init_result != RESULT_OK)
        return status_set(error, MC_ERR_NOT_SUPPORTED, 0, "libcurl: %s", curl.easy_strerror(init_result));
    block_signals(&signals);
    answer->code = 0;
    answer->length = 0;
    easy = curl.easy_init();
    if (body != NULL)
        headers = curl.slist_append(NULL, "Content-Type: application/json");
    if (easy != NULL && (body == NULL || headers != NULL) &&
        set_options(easy, method, url, body, deadline, answer, words) &&
        (headers == NULL || curl.easy_setopt(easy, OPTION_HEADERS, headers) == RESULT_OK))
        result = curl.easy_perform(easy);
    if (result == RESULT_OK)
        result = curl.easy_getinfo(easy, INFO_RESPONSE_CODE, &answer->code);
    if (result != RESULT_OK)
        status = explain(result, strncasecmp(url, "https", 5) == 0, words, error);
    answer->body[answer->length] = '\0';
    if (easy != NULL)
        curl.easy_cleanup(easy);
    curl.slist_free_all(headers);
    unblock_signals(&signals);
    return status;
}
