// Package admin shows a node over HTTP: its members, sessions, locks and znodes. People with the
// right to do so can write znodes, end a session and take a backup.
//
//	authorize, err := admin.Tokens("/etc/shop/admin-tokens")
//	...
//	options := admin.Options{Authorize: authorize, Hosts: []string{"shop.example"}}
//	handler, err := admin.New(node, options)
//	...
//	mux.Handle("/vivarium/", http.StripPrefix("/vivarium", handler))
//
// A service that does not import the package carries none of it. docs/admin.md lists every path
// with its parameters and answers.
//
// # Who may ask
//
// Every request passes these checks, in this order:
//
//  1. Its Host is one of Options.Hosts, localhost or an IP address. Otherwise the status is 421. So
//     a page of a stranger whose name was rebound to this address reads nothing.
//  2. Options.Authorize returns a Grant. Otherwise the status is 401. There are no cookies, so a
//     browser sends nothing by itself that would authorise a request of another page.
//  3. If it may change something, it does not come from another page: see
//     [http.CrossOriginProtection]. Otherwise the status is 403.
//  4. The Grant's Role allows the path. Otherwise the status is 403.
//
// No GET changes anything. There are no CORS headers. X-Forwarded-For and its like are never read:
// a proxy in front must authorise requests in a way that Authorize can verify.
//
// # Whose rights a znode is read and written with
//
// ACLs are asked as the identities of the Grant, not as the service. Reads do not need a session:
// they show this node's own replica, as embed.Node.Peek does. So they work without a quorum, and
// may be stale then; with sync=1 they wait for a quorum first. Writes and watches need a session.
// The Handler opens one for each set of identities, and all requests with these identities share
// it. A session that nobody uses for a minute is closed. There are 16 at most: if all are in use,
// one more set of identities gets 503. No znode belongs to such a session, because ephemerals
// cannot be created here.
//
// The lists of sessions and members, metrics and the audit show names and paths to every Viewer,
// whatever ACLs say. Locks and data are shown only as ACLs allow, except to the role Backup: a
// backup has everything.
//
// # What became of a write
//
// Every answer to a request that is not a GET or HEAD has the header Vivarium-Outcome:
//
//	applied   it was done, exactly once
//	refused   it was not done, and never will be
//	unknown   nobody can tell yet: look before you try again
//
// The three never mix, except for an import: it is not atomic, so after an error that came when
// something was done already, it is "unknown". If a connection ends without an answer, that means
// unknown too.
//
// Every request that may change something, and was not refused by the checks above, is logged with
// the Grant's name, the outcome and the reason that the caller gave. The line has the id of the
// session, by which the audit's records of the change are found.
//
// # Limits
//
// A body has at most as many bytes as a znode's data may have, and a Multi some more. Four requests
// that read or write much may run at a time: backup, export, import, usage, find, locks, audit. A further
// one gets 503. 64 follows may run at a time. A caller that does not read what is sent to it is
// given up after half a minute, whatever it has asked for. Everything ends when the node does; a
// Handler has nothing to close.
package admin
