/*
 * Reads and changes the members with ZooKeeper's C client, as the process asks that started it.
 * reconfig_test.go has the language.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zookeeper/zookeeper.h>

enum { LINE = 1 << 16, WORDS = 5, TIMEOUT = 20000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static zhandle_t *client;
static int event_type; /* of the event that nobody has taken yet; 0 if there is none */
static char event_path[LINE];
static int completed, code; /* of the last asynchronous call */

/* What an answer to reconfig contains. */
static char data[LINE];
static int data_len;
static struct Stat stat;

static void on_event(zhandle_t *zh, int type, int state, const char *path, void *ctx) {
    if (type == ZOO_SESSION_EVENT) {
        return;
    }
    pthread_mutex_lock(&lock);
    event_type = type;
    snprintf(event_path, sizeof event_path, "%s", path);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void complete(int rc) {
    pthread_mutex_lock(&lock);
    code = rc;
    completed = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void on_void(int rc, const void *ctx) { complete(rc); }

static void on_data(int rc, const char *value, int len, const struct Stat *s, const void *ctx) {
    if (rc == ZOK) {
        data_len = len < LINE ? len : LINE;
        memcpy(data, value, data_len);
        stat = *s;
    }
    complete(rc);
}

/* Waits for the asynchronous call that began with rc. */
static int wait_for(int rc) {
    if (rc != ZOK) {
        return rc;
    }
    pthread_mutex_lock(&lock);
    while (!completed) {
        pthread_cond_wait(&changed, &lock);
    }
    completed = 0;
    rc = code;
    pthread_mutex_unlock(&lock);
    return rc;
}

static void print_config(int rc) {
    if (rc != ZOK) {
        printf("%d\n", rc);
        return;
    }
    printf("0\t%lld\t%d\t", (long long)stat.mzxid, stat.version);
    for (int i = 0; i < data_len; i++) {
        putchar(data[i] == '\n' ? '|' : data[i]);
    }
    putchar('\n');
}

static int get_config(watcher_fn watcher) {
    data_len = LINE;
    return watcher ? zoo_wgetconfig(client, watcher, NULL, data, &data_len, &stat) : zoo_getconfig(client, 0, data, &data_len, &stat);
}

static void connect_to(const char *servers) {
    if (client) {
        zookeeper_close(client);
    }
    client = zookeeper_init(servers, NULL, TIMEOUT, NULL, NULL, 0);
    while (zoo_state(client) != ZOO_CONNECTED_STATE) {
        usleep(5000);
    }
}

/* Takes other servers, and waits until the client is connected to one of them. */
static int follow(const char *servers) {
    int rc = zoo_set_servers(client, servers);
    if (rc != ZOK) {
        return rc;
    }
    while ((rc = zoo_exists(client, "/", 0, NULL)) == ZCONNECTIONLOSS || !strstr(servers, zoo_get_current_server(client))) {
        usleep(5000);
    }
    return rc;
}

static const char *or_null(const char *word) { return strcmp(word, "-") ? word : NULL; }

static void answer(char **word) {
    if (!strcmp(word[0], "connect")) {
        connect_to(word[1]);
        printf("0\n");
    } else if (!strcmp(word[0], "auth")) {
        printf("%d\n", wait_for(zoo_add_auth(client, "digest", word[1], (int)strlen(word[1]), on_void, NULL)));
    } else if (!strcmp(word[0], "config")) {
        print_config(get_config(NULL));
    } else if (!strcmp(word[0], "watch")) {
        print_config(get_config(on_event));
    } else if (!strcmp(word[0], "event")) {
        pthread_mutex_lock(&lock);
        while (!event_type) {
            pthread_cond_wait(&changed, &lock);
        }
        printf("0\t%d\t%s\n", event_type, event_path);
        event_type = 0;
        pthread_mutex_unlock(&lock);
    } else if (!strcmp(word[0], "follow")) {
        int rc = follow(word[1]);
        printf("%d\t%s\n", rc, word[1]);
    } else if (!strcmp(word[0], "reconfig")) {
        print_config(wait_for(zoo_areconfig(client, or_null(word[1]), or_null(word[2]), or_null(word[3]), atoll(word[4]), on_data, NULL)));
    } else {
        printf("cannot\n");
    }
}

int main(void) {
    static char line[LINE];
    setvbuf(stdout, NULL, _IOLBF, 0);
    zoo_set_debug_level(0);
    while (fgets(line, sizeof line, stdin)) {
        char *rest = line, *word[WORDS] = {"", "", "", "", ""};
        line[strcspn(line, "\n")] = 0;
        for (int i = 0; i < WORDS && rest; i++) {
            word[i] = strsep(&rest, "\t");
        }
        answer(word);
    }
    if (client) {
        zookeeper_close(client);
    }
    return 0;
}
