/* test_server.c - a metadata server that is shared with others, in trouble, or hostile. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "directory_contract.h"
#include "net/http.h"

static void publish(struct directory *directory, const char *name, const char *address) {
    EXPECT_STATUS(MC_OK, directory_publish(directory, name, address, CLOCK_NEVER, new_error()));
}

static void expect_found(struct directory *directory, const char *name, const char *address) {
    char found[ADDRESS_TEXT_MAX] = "";

    EXPECT_STATUS(MC_OK, directory_find(directory, name, CLOCK_NEVER, found, new_error()));
    assert_string_equal(found, address);
}

/* Looks a name up where the answer must be refused, and leaves the words behind. */
static void expect_refused(const char *path, int32_t status) {
    struct directory *directory = open_at(path);
    char found[ADDRESS_TEXT_MAX] = "untouched";

    EXPECT_STATUS(status, directory_find(directory, "name", CLOCK_NEVER, found, new_error()));
    assert_string_equal(found, "untouched");
    directory_close(directory);
}

/* As any HTTP client does it. */
static long raw(const char *method, const char *key, const char *body, char *ret_body, size_t size) {
    struct http_answer *answer = malloc(sizeof(*answer));
    char url[512];
    long code;

    assert_non_null(answer);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d/metadata?key=%s", server_port, key);
    EXPECT_STATUS(MC_OK,
                  http_request(method, url, body, clock_after(clock_now(), 3 * CLOCK_SECOND), answer, new_error()));
    code = answer->code;
    text_copy(ret_body, size, answer->body);
    free(answer);
    return code;
}

/* ---- Names ---- */

static void a_name_stands_for_what_was_published_last(void **state) {
    struct directory *directory = open_kind(), *other = open_kind();

    (void)state;
    publish(directory, "last", "127.0.0.1:1");
    publish(other, "last", "10.0.0.2:2");
    expect_found(directory, "last", "10.0.0.2:2");
    directory_close(directory);
    directory_close(other);
}

static void a_name_that_another_has_taken_is_left_to_it(void **state) {
    struct directory *directory = open_kind();

    (void)state;
    publish(directory, "taken", "127.0.0.1:1");
    publish(directory, "taken", "127.0.0.1:2");
    EXPECT_STATUS(MC_OK, directory_withdraw(directory, "taken", "127.0.0.1:1", CLOCK_NEVER, new_error()));
    expect_found(directory, "taken", "127.0.0.1:2");
    directory_close(directory);
}

static void a_name_is_taken_over_also_where_the_server_refuses_a_second_value(void **state) {
    struct directory *directory = open_at("/strict");

    (void)state;
    publish(directory, "strict", "127.0.0.1:1");
    publish(directory, "strict", "127.0.0.1:1");
    publish(directory, "strict", "127.0.0.1:2");
    expect_found(directory, "strict", "127.0.0.1:2");
    directory_close(directory);
}

static void any_printable_byte_may_be_in_a_name(void **state) {
    struct directory *directory = open_kind();
    char name[DIRECTORY_NAME_MAX + 1];

    (void)state;
    for (size_t i = 0; i < DIRECTORY_NAME_MAX; i++)
        name[i] = (char)(' ' + i % ('~' - ' ' + 1));
    name[DIRECTORY_NAME_MAX] = '\0';
    publish(directory, name, "127.0.0.1:3");
    expect_found(directory, name, "127.0.0.1:3");
    name[DIRECTORY_NAME_MAX - 1] = '\0';
    EXPECT_STATUS(MC_ERR_NAME_NOT_FOUND,
                  directory_find(directory, name, CLOCK_NEVER, (char[ADDRESS_TEXT_MAX]){0}, new_error()));
    directory_close(directory);
}

static void keys_and_values_are_those_of_existing_deployments(void **state) {
    struct directory *directory = open_kind();
    char body[256];

    (void)state;
    publish(directory, "node-1:12345", "192.168.0.7:15001");
    assert_int_equal(raw("GET", "mooncake%2Frpc_meta%2Fnode-1%3A12345", NULL, body, sizeof(body)), 200);
    assert_string_equal(body, "{\"ip_or_host_name\":\"192.168.0.7\",\"rpc_port\":15001}");
    publish(directory, "own/key", "192.168.0.7:15001");
    assert_int_equal(raw("GET", "own%2Fkey", NULL, body, sizeof(body)), 200);
    assert_int_equal(raw("PUT", "mooncake%2Frpc_meta%2Ftheirs",
                         "{\n  \"rpc_port\" : 15002, \"ip_or_host_name\" : \"node-2\", \"later\": [1] }\n", body,
                         sizeof(body)),
                     200);
    expect_found(directory, "theirs", "node-2:15002");
    EXPECT_STATUS(MC_OK, directory_withdraw(directory, "theirs", "node-2:15002", CLOCK_NEVER, new_error()));
    assert_int_equal(raw("GET", "mooncake%2Frpc_meta%2Ftheirs", NULL, body, sizeof(body)), 404);
    directory_close(directory);
}

static void clusters_of_one_server_do_not_meet(void **state) {
    struct directory *none = open_kind(), *red;
    char body[256], found[ADDRESS_TEXT_MAX];

    (void)state;
    setenv("MC_METADATA_CLUSTER_ID", "red", 1);
    red = open_kind();
    unsetenv("MC_METADATA_CLUSTER_ID");
    publish(red, "shared", "127.0.0.1:4");
    EXPECT_STATUS(MC_ERR_NAME_NOT_FOUND, directory_find(none, "shared", CLOCK_NEVER, found, new_error()));
    publish(none, "shared", "127.0.0.1:5");
    expect_found(red, "shared", "127.0.0.1:4");
    assert_int_equal(raw("GET", "mooncake%2Fred%2Frpc_meta%2Fshared", NULL, body, sizeof(body)), 200);
    directory_close(none);
    directory_close(red);
}

/* ---- Answers ---- */

static void expect_value_refused(const char *value) {
    struct writer writer;
    char path[512];

    writer_init(&writer, path, sizeof(path));
    writer_print(&writer, "/value/");
    http_escape(&writer, value);
    expect_refused(path, MC_ERR_PROTOCOL);
    expect_words("what it has of \"name\"");
}

static void what_has_not_the_right_form_is_not_believed(void **state) {
    static const char *const values[] = {
        "",
        " ",
        "null",
        "7",
        "\"127.0.0.1:7\"",
        "{",
        "[]",
        "{}",
        "{\"ip_or_host_name\":\"h\"}",
        "{\"rpc_port\":7}",
        "{\"ip_or_host_name\":7,\"rpc_port\":7}",
        "{\"ip_or_host_name\":null,\"rpc_port\":7}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":\"7\"}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":0}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":-7}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":65536}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":99999}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":7.5}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":4294967303}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":18446744073709551623}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":1e3}",
        "{\"ip_or_host_name\":\"\",\"rpc_port\":7}",
        "{\"ip_or_host_name\":\"h:9\",\"rpc_port\":7}",
        "{\"ip_or_host_name\":\"a b\",\"rpc_port\":7}",
        "{\"ip_or_host_name\":\"h\\n\",\"rpc_port\":7}",
        "{\"ip_or_host_name\":\"h\\u0000x\",\"rpc_port\":7}",
        "{\"ip_or_host_name\":\"h\x01x\",\"rpc_port\":7}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":7}\x01",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":7}{}",
        "{\"ip_or_host_name\":\"h\",\"rpc_port\":7,\"rpc_port\":8}",
        "{\"ip_or_host_name\":\"0.0.0.0\",\"rpc_port\":7}",
        "{\"ip_or_host_name\":\"::\",\"rpc_port\":7}",
        "{\"ip_or_host_name\":\"::0\",\"rpc_port\":7}",
        "{\"ip_or_host_name\":\"http://h\",\"rpc_port\":7}",
        "{\"ip_or_host_name\":\"\xff\xfe\",\"rpc_port\":7}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        expect_value_refused(values[i]);
    expect_refused("/value/%7B%22ip_or_host_name%22:%22h%00x%22,%22rpc_port%22:7%7D", MC_ERR_PROTOCOL);
    expect_refused("/value/%7B%22ip_or_host_name%22:%22h%22,%22rpc_port%22:7%7D%00", MC_ERR_PROTOCOL);
}

static void a_host_may_not_be_longer_than_any_name(void **state) {
    char path[700], host[400];

    (void)state;
    memset(host, 'h', sizeof(host) - 1);
    host[sizeof(host) - 1] = '\0';
    snprintf(path, sizeof(path), "/value/%%7B%%22ip_or_host_name%%22:%%22%s%%22,%%22rpc_port%%22:7%%7D", host);
    expect_refused(path, MC_ERR_PROTOCOL);
    expect_words("malformed host");
}

static void only_200_is_success(void **state) {
    static const struct {
        const char *path;
        int32_t find, publish;
    } codes[] = {
        {"/status/200", MC_OK, MC_OK},
        {"/status/201", MC_ERR_PROTOCOL, MC_ERR_PROTOCOL},
        {"/status/204", MC_ERR_PROTOCOL, MC_ERR_PROTOCOL},
        {"/status/304", MC_ERR_PROTOCOL, MC_ERR_PROTOCOL},
        {"/status/400", MC_ERR_PROTOCOL, MC_ERR_PROTOCOL},
        {"/status/403", MC_ERR_PROTOCOL, MC_ERR_PROTOCOL},
        {"/status/404", MC_ERR_NAME_NOT_FOUND, MC_ERR_PROTOCOL},
        {"/status/500", MC_ERR_UNREACHABLE, MC_ERR_UNREACHABLE},
        {"/status/503", MC_ERR_UNREACHABLE, MC_ERR_UNREACHABLE},
        {"/wrong/path", MC_ERR_NAME_NOT_FOUND, MC_ERR_PROTOCOL},
    };
    char found[ADDRESS_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        struct directory *directory = open_at(codes[i].path);

        EXPECT_STATUS(codes[i].find, directory_find(directory, "name", CLOCK_NEVER, found, new_error()));
        EXPECT_STATUS(codes[i].publish, directory_publish(directory, "name", "127.0.0.1:7", CLOCK_NEVER, new_error()));
        directory_close(directory);
    }
}

static void a_redirect_is_not_followed(void **state) {
    struct directory *directory = open_kind();

    (void)state;
    publish(directory, "name", "127.0.0.1:7");
    expect_refused("/redirect", MC_ERR_PROTOCOL);
    expect_words("302");
    EXPECT_STATUS(MC_OK, directory_withdraw(directory, "name", "127.0.0.1:7", CLOCK_NEVER, new_error()));
    directory_close(directory);
}

static void an_answer_without_end_is_refused(void **state) {
    (void)state;
    expect_refused("/huge", MC_ERR_PROTOCOL);
    expect_words("more than 65536 bytes");
    expect_refused("/endless", MC_ERR_PROTOCOL);
    expect_words("more than 65536 bytes");
}

static void half_an_answer_is_none(void **state) {
    (void)state;
    expect_refused("/cut", MC_ERR_UNREACHABLE);
}

static void what_is_not_http_is_refused(void **state) {
    (void)state;
    expect_refused("/garbage", MC_ERR_PROTOCOL);
}

/* ---- Time ---- */

static void three_seconds_are_the_most_that_is_waited(void **state) {
    static const char *const paths[] = {"/drip", "/silent"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint64_t begin = clock_now();

        expect_refused(paths[i], MC_ERR_UNREACHABLE);
        expect_words("in time");
        assert_in_range(clock_now() - begin, 2 * CLOCK_SECOND, 6 * CLOCK_SECOND);
    }
}

static void a_deadline_of_the_caller_ends_it_sooner(void **state) {
    struct directory *directory = open_at("/silent");
    char found[ADDRESS_TEXT_MAX] = "untouched";
    uint64_t begin = clock_now();

    (void)state;
    EXPECT_STATUS(MC_ERR_UNREACHABLE, directory_find(directory, "name", begin, found, new_error()));
    EXPECT_STATUS(MC_ERR_UNREACHABLE,
                  directory_find(directory, "name", begin + 200 * CLOCK_MILLISECOND, found, new_error()));
    assert_true(clock_now() - begin < 2 * CLOCK_SECOND);
    directory_close(directory);
}

/* ---- The way there ---- */

/* A port of this host where nobody listens, as long as the socket is open. */
static int silent_port(int *ret_port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

static void where_nobody_listens_is_unreachable(void **state) {
    struct directory *directory;
    char where[64], found[ADDRESS_TEXT_MAX];
    int port, fd = silent_port(&port);

    (void)state;
    snprintf(where, sizeof(where), "http://127.0.0.1:%d/metadata", port);
    EXPECT_STATUS(MC_OK, directory_open(where, &directory, new_error()));
    EXPECT_STATUS(MC_ERR_UNREACHABLE, directory_find(directory, "name", CLOCK_NEVER, found, new_error()));
    expect_words(where);
    EXPECT_STATUS(MC_ERR_UNREACHABLE, directory_publish(directory, "name", "h:1", CLOCK_NEVER, new_error()));
    EXPECT_STATUS(MC_ERR_UNREACHABLE, directory_withdraw(directory, "name", "h:1", CLOCK_NEVER, new_error()));
    directory_close(directory);
    close(fd);
}

static void a_proxy_is_not_asked_for_this_host(void **state) {
    struct directory *directory = open_kind();
    char proxy[64], found[ADDRESS_TEXT_MAX], *former = getenv("http_proxy");
    int port, fd = silent_port(&port);

    (void)state;
    former = former != NULL ? strdup(former) : NULL;
    snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", port);
    setenv("http_proxy", proxy, 1);
    EXPECT_STATUS(MC_ERR_NAME_NOT_FOUND, directory_find(directory, "nobody", CLOCK_NEVER, found, new_error()));
    if (former != NULL)
        setenv("http_proxy", former, 1);
    else
        unsetenv("http_proxy");
    free(former);
    directory_close(directory);
    close(fd);
}

static void signals_are_as_before(void **state) {
    struct directory *directory = open_kind();
    char found[ADDRESS_TEXT_MAX];
    struct sigaction action;
    sigset_t mask, pending;

    (void)state;
    EXPECT_STATUS(MC_ERR_NAME_NOT_FOUND, directory_find(directory, "nobody", CLOCK_NEVER, found, new_error()));
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    assert_int_equal(sigpending(&pending), 0);
    for (int number = 1; number < 32; number++) {
        assert_int_equal(sigismember(&mask, number), 0);
        assert_int_equal(sigismember(&pending, number), 0);
    }
    assert_int_equal(sigaction(SIGPIPE, NULL, &action), 0);
    assert_ptr_equal(action.sa_handler, SIG_DFL);
    directory_close(directory);
}

const struct CMUnitTest server_tests[] = {
    cmocka_unit_test(a_name_stands_for_what_was_published_last),
    cmocka_unit_test(a_name_that_another_has_taken_is_left_to_it),
    cmocka_unit_test(a_name_is_taken_over_also_where_the_server_refuses_a_second_value),
    cmocka_unit_test(any_printable_byte_may_be_in_a_name),
    cmocka_unit_test(keys_and_values_are_those_of_existing_deployments),
    cmocka_unit_test(clusters_of_one_server_do_not_meet),
    cmocka_unit_test(what_has_not_the_right_form_is_not_believed),
    cmocka_unit_test(a_host_may_not_be_longer_than_any_name),
    cmocka_unit_test(only_200_is_success),
    cmocka_unit_test(a_redirect_is_not_followed),
    cmocka_unit_test(an_answer_without_end_is_refused),
    cmocka_unit_test(half_an_answer_is_none),
    cmocka_unit_test(what_is_not_http_is_refused),
    cmocka_unit_test(three_seconds_are_the_most_that_is_waited),
    cmocka_unit_test(a_deadline_of_the_caller_ends_it_sooner),
    cmocka_unit_test(where_nobody_listens_is_unreachable),
    cmocka_unit_test(a_proxy_is_not_asked_for_this_host),
    cmocka_unit_test(signals_are_as_before),
};
const size_t server_test_count = sizeof(server_tests) / sizeof(server_tests[0]);
