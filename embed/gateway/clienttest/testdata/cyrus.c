/* Answers the challenges of a server with Cyrus SASL, as ZooKeeper's C client does.
 *
 * usage: cyrus USER PASSWORD
 *
 * It reads a challenge on each line and writes a response for it, both in hexadecimal digits. It
 * writes "done" when the server has proved that it knows the password too.
 */
#include <sasl/sasl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *user;
static sasl_secret_t *secret;

static int simple(void *context, int id, const char **result, unsigned *len) {
	*result = user;
	if (len) *len = strlen(user);
	return SASL_OK;
}

static int password(sasl_conn_t *conn, void *context, int id, sasl_secret_t **result) {
	*result = secret;
	return SASL_OK;
}

static void check(int rc, const char *what) {
	if (rc == SASL_OK || rc == SASL_CONTINUE) return;
	printf("%s: %s\n", what, sasl_errstring(rc, NULL, NULL));
	exit(1);
}

int main(int argc, char **argv) {
	sasl_callback_t callbacks[] = {
		{SASL_CB_USER, (int (*)(void))simple, NULL},
		{SASL_CB_AUTHNAME, (int (*)(void))simple, NULL},
		{SASL_CB_PASS, (int (*)(void))password, NULL},
		{SASL_CB_LIST_END, NULL, NULL},
	};
	sasl_conn_t *conn;
	const char *out, *mechanism;
	unsigned len, i, byte;
	char line[20000], challenge[10000];
	int rc;

	if (argc != 3) return 2;
	user = argv[1];
	secret = malloc(sizeof *secret + strlen(argv[2]) + 1);
	secret->len = strlen(argv[2]);
	strcpy((char *)secret->data, argv[2]);
	check(sasl_client_init(NULL), "init");
	check(sasl_client_new("zookeeper", "zk-sasl-md5", NULL, NULL, callbacks, 0, &conn), "new");
	check(sasl_client_start(conn, "DIGEST-MD5", NULL, &out, &len, &mechanism), "start");
	while (fgets(line, sizeof line, stdin)) {
		for (i = 0; sscanf(line + 2 * i, "%2x", &byte) == 1; i++) challenge[i] = byte;
		rc = sasl_client_step(conn, challenge, i, NULL, &out, &len);
		check(rc, "step");
		if (rc == SASL_OK) {
			printf("done\n");
			return 0;
		}
		for (i = 0; i < len; i++) printf("%02x", (unsigned char)out[i]);
		printf("\n");
		fflush(stdout);
	}
	return 1;
}
