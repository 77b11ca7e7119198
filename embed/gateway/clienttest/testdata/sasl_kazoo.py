"""Logs in with kazoo by SASL, and prints what it may do.

usage: sasl_kazoo.py HOST:PORT USER PASSWORD PATH
"""
import logging
import sys
import time

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException
from kazoo.protocol.states import KeeperState
from kazoo.security import CREATOR_ALL_ACL

logging.disable(logging.CRITICAL)
host, user, password, path = sys.argv[1:]
client = KazooClient(host, sasl_options={"mechanism": "DIGEST-MD5", "username": user, "password": password},
                     connection_retry={"max_tries": 0}, timeout=20)
connected = client.start_async()
late = time.monotonic() + 60
while not connected.wait(0.05) and client.client_state != KeeperState.AUTH_FAILED and time.monotonic() < late:
    pass
try:
    if not client.connected:
        raise AuthFailedError()
    client.create(path, b"x", acl=CREATOR_ALL_ACL)
except KazooException:
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
