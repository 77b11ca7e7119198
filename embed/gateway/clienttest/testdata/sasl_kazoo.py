"""Logs in with kazoo by SASL, and prints what it may do.

usage: sasl_kazoo.py HOST:PORT USER PASSWORD PATH
"""
import logging
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import CREATOR_ALL_ACL

logging.disable(logging.CRITICAL)
host, user, password, path = sys.argv[1:]
client = KazooClient(host, sasl_options={"mechanism": "DIGEST-MD5", "username": user, "password": password},
                     connection_retry={"max_tries": 0}, timeout=20)
try:
    client.start(timeout=20)
    client.create(path, b"x", acl=CREATOR_ALL_ACL)
except (KazooException, KazooTimeoutError):
    print("refused")
    sys.exit()
for acl in client.get_acls(path)[0]:
    print("acl", acl.id.scheme, acl.id.id, acl.perms)
try:
    client.get("/private")
    print("read /private")
except KazooException as e:
    print(type(e).__name__)
client.stop()
