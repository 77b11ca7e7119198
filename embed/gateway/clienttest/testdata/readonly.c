/*
 * Prints what ZooKeeper's C client does with ZOO_READONLY, with a quorum, without one, and with one again.
 * A line that begins with @ is a request to the process that started this one, as in readonly_kazoo.py.
 *
 * usage: readonly HOST:PORT,HOST:PORT,HOST:PORT
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <zookeeper/zookeeper.h>

enum { TIMEOUT = 15000, PATIENCE = 90, LINE = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int state; /* the newest, of any client */

static void on_event(zhandle_t *zh, int type, int now, const char *path, void *ctx) {
    if (type != ZOO_SESSION_EVENT) {
        return;
    }
    pthread_mutex_lock(&lock);
    state = now;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Waits for a state, and returns the newest one. */
static int wait_for(int wanted, int seconds) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += seconds;
    pthread_mutex_lock(&lock);
    while (state != wanted && pthread_cond_timedwait(&changed, &lock, &end) == 0) {
    }
    int now = state;
    pthread_mutex_unlock(&lock);
    return now;
}

static const char *name_of(int s) {
    if (s == ZOO_CONNECTED_STATE) {
        return "connected";
    }
    if (s == ZOO_READONLY_STATE) {
        return "connected, reads only";
    }
    return s == ZOO_EXPIRED_SESSION_STATE ? "expired" : "not connected";
}

static void await(int wanted) {
    int now = wait_for(wanted, PATIENCE);
    printf("%s\n", name_of(now));
    if (now != wanted) {
        exit(1);
    }
}

static void ask(const char *what) {
    char line[LINE];
    printf("@%s\n", what);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin) || strcmp(line, "ok\n") != 0) {
        exit(1);
    }
}

static zhandle_t *open_client(const char *servers, int flags) {
    pthread_mutex_lock(&lock);
    state = 0;
    pthread_mutex_unlock(&lock);
    zhandle_t *z = zookeeper_init(servers, on_event, TIMEOUT, NULL, NULL, flags);
    if (z == NULL) {
        exit(1);
    }
    return z;
}

static void works(zhandle_t *z) {
    char data[LINE];
    int len = sizeof data;
    struct Stat stat;
    struct String_vector names = {0, NULL};
    struct ACL_vector acl;
    int rc = zoo_get(z, "/a", 0, data, &len, &stat);
    printf("get: %d %.*s\n", rc, rc == ZOK ? len : 0, data);
    printf("exists, none: %d\n", zoo_exists(z, "/none", 0, &stat));
    rc = zoo_get_children(z, "/", 0, &names);
    printf("children: %d %d\n", rc, names.count);
    if (rc == ZOK) {
        deallocate_String_vector(&names);
    }
    rc = zoo_get_acl(z, "/a", &acl, &stat);
    printf("acl: %d\n", rc);
    if (rc == ZOK) {
        deallocate_ACL_vector(&acl);
    }
    printf("create: %d\n", zoo_create(z, "/a/b", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    printf("create an ephemeral: %d\n", zoo_create(z, "/a/e", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0));
    printf("set: %d\n", zoo_set(z, "/a", "y", 1, -1));
    printf("delete: %d\n", zoo_delete(z, "/a/b", -1));
    printf("delete: %d\n", zoo_delete(z, "/a/e", -1));
    printf("get with a watch: %d\n", zoo_exists(z, "/a", 1, &stat));
}

int main(int argc, char **argv) {
    char first[LINE];
    zoo_set_debug_level(0);
    snprintf(first, sizeof first, "%s", argv[1]);
    *strchr(first, ',') = '\0';

    printf("== with a quorum\n");
    zhandle_t *z = open_client(argv[1], ZOO_READONLY);
    await(ZOO_CONNECTED_STATE);
    printf("create: %d\n", zoo_create(z, "/a", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    works(z);
    zookeeper_close(z);

    printf("== without a quorum\n");
    ask("stop 1");
    ask("stop 2");
    z = open_client(argv[1], ZOO_READONLY);
    await(ZOO_READONLY_STATE); // by now the server knows that it has no quorum
    works(z);
    zhandle_t *other = open_client(first, 0);
    printf("a client that does not accept it: %s\n", name_of(wait_for(ZOO_CONNECTED_STATE, 4)));
    zookeeper_close(other);

    printf("== with a quorum again\n");
    ask("start 1");
    ask("start 2");
    await(ZOO_CONNECTED_STATE);
    works(z);
    zookeeper_close(z);
    return 0;
}
