/* main.c - runs the suite over one kind of directory: `test-directory p2p|http metadata_server.py`. */
#include <unistd.h>
#include <sys/wait.h>

#include "directory_contract.h"

bool over_http;
int server_port;

static _Thread_local struct mc_error last_error;

struct mc_error *new_error(void) {
    last_error = (struct mc_error)MC_ERROR_INIT;
    return &last_error;
}

void expect_status(int32_t wanted, int32_t got, const char *call, const char *file, int line) {
    if (got == wanted)
        return;
    print_error("%s\n  is %d, not %d: %s\n", call, got, wanted, last_error.message);
    _fail(file, line);
}

void expect_words(const char *words) {
    if (strstr(last_error.message, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, last_error.message);
}

struct directory *open_at(const char *path) {
    struct directory *directory;
    char where[512];

    snprintf(where, sizeof(where), "http://127.0.0.1:%d%s", server_port, path);
    EXPECT_STATUS(MC_OK, directory_open(over_http ? where : "p2p", &directory, new_error()));
    return directory;
}

struct directory *open_kind(void) {
    return open_at("/metadata");
}

/* The server ends with its standard input. */
static pid_t start_server(const char *script, int *ret_input) {
    char line[16] = "";
    int in[2], out[2];
    pid_t id;

    if (pipe(in) != 0 || pipe(out) != 0)
        return -1;
    id = fork();
    if (id == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        for (int i = 0; i < 2; i++) {
            close(in[i]);
            close(out[i]);
        }
        execlp("python3", "python3", script, NULL);
        _exit(1);
    }
    close(in[0]);
    close(out[1]);
    *ret_input = in[1];
    for (size_t length = 0; length < sizeof(line) - 1 && strchr(line, '\n') == NULL; length++)
        if (read(out[0], line + length, 1) != 1)
            break;
    close(out[0]);
    server_port = atoi(line);
    return id;
}

int main(int argc, char **argv) {
    static struct CMUnitTest tests[64];
    size_t count = names_test_count;
    int failed, input = -1;
    pid_t server = -1;

    if (argc < 3 || names_test_count + server_test_count > sizeof(tests) / sizeof(tests[0]))
        return 2;
    over_http = strcmp(argv[1], "http") == 0;
    /* Whoever runs the tests may have it. */
    unsetenv("MC_METADATA_CLUSTER_ID");
    memcpy(tests, names_tests, names_test_count * sizeof(tests[0]));
    if (over_http) {
        if (directory_http.unavailable() != NULL) {
            printf("1..1\n# %s\nok 1 # SKIP directories by http\n", directory_http.unavailable());
            return 0;
        }
        memcpy(tests + count, server_tests, server_test_count * sizeof(tests[0]));
        count += server_test_count;
        server = start_server(argv[2], &input);
        if (server < 0 || server_port <= 0) {
            fprintf(stderr, "python3 can't run %s\n", argv[2]);
            return 1;
        }
    }
    failed = _cmocka_run_group_tests(argv[1], tests, count, NULL, NULL);
    if (over_http) {
        close(input);
        waitpid(server, NULL, 0);
    }
    return failed;
}
