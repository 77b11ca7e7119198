// Vivarium runs a member of an ensemble as a process of its own, for services that want a server in
// ZooKeeper's place rather than a library. ZooKeeper's clients, recipes, shells and monitors work
// with it unchanged.
//
//	vivarium serve -config node.yaml    run a member, with a port for ZooKeeper's clients
//	vivarium shell -server host:port    talk to a server, Vivarium's or ZooKeeper's, like zkCli
//	vivarium members -config node.yaml  show the members of an ensemble, or remove one
//	vivarium check DIR                  verify the data directory of a stopped member
//	vivarium audit -path /a DIR         print who created, changed or deleted a znode, and when
//	vivarium backup -config node.yaml FILE
//	                                    write a backup of the whole tree to a file
//	vivarium verify FILE                read a backup, and say whether it is sound and what it has
//	vivarium export FILE                print the znodes of a backup as lines of JSON
//	vivarium import -server host:port FILE
//	                                    create the znodes of a backup or of lines of JSON
//	vivarium convert -from-zookeeper DIR FILE
//	                                    make a backup of a stopped ZooKeeper server's files
//	vivarium copy -from zk1:2181 -server host:port
//	                                    copy a subtree from a living ZooKeeper, and compare
//	vivarium serve -config node.yaml -seed FILE
//	                                    begin a new ensemble with a backup
//	vivarium recover -look DIR...       show what the directories of lost members have
//	vivarium recover -accept-data-loss -i-have-stopped 2,3 DIR
//	                                    go on from one of them, without the others
//	vivarium user NAME                  print a line for gateway.saslUsers, for a password
//	vivarium version
//	vivarium help [command]
//
// To install it as one static binary:
//
//	CGO_ENABLED=0 go install github.com/vivarium-go/vivarium/cmd/vivarium@latest
//
// # serve
//
// Two lines configure a server that is alone:
//
//	dir: data
//	gateway: {listen: "127.0.0.1:2181"}
//
// These are all the keys, with their defaults. Any other key is refused, and so is a key without a
// value.
//
//	dir: /var/lib/vivarium     # everything that the member persists. Required. A relative path
//	                           # starts at the directory where the process was started
//	id: 1                      # this member. Required with members, here or as -id N
//	members:                   # the founding members and their addresses for one another, the
//	  1: 10.0.0.1:7400         # same on all of them. Without members, the server is alone
//	  2: 10.0.0.2:7400
//	  3: 10.0.0.3:7400
//	listen: ""                 # where this member listens for the others. Default: its address in
//	                           # members if that is an IP address or localhost, otherwise the
//	                           # port of that address on all interfaces
//	join: []                   # addresses of members. Not empty: members may come and go. Then
//	                           # id and members say only who founds the ensemble; others leave
//	                           # them out
//	advertise: ""              # where the others reach this member. Default: its address in members
//	name: ""                   # of this replica, which it keeps when its disk is lost. Default: none
//	zone: ""                   # what fails together; voters are spread over the zones
//	observer: false            # never votes
//	ephemeral: false           # the directory ends with the process, so a stop leaves the ensemble
//	voters: 3                  # how many members should vote: 1, 3, 5, 7 or 9
//	deadAfter: 10m             # the silence after which a voter is replaced. Negative: never
//	ensemble: ""               # a name. Members of different names do not talk. Fixed at founding
//	shards: 1                  # Raft groups. Fixed at founding. With more than one, the tree as a
//	                           # whole no longer has one order
//	tls:                       # mutual TLS between members. Default: plain text
//	  certFile: member.crt
//	  keyFile: member.key
//	  caFile: members-ca.crt
//	  migrate: false           # also plain text, with members that have no TLS yet
//	tick: 50ms                 # of heartbeats and elections, the same on every member
//	requestTimeout: 5s         # how long to wait for a quorum. A stop takes up to three times that
//	sessionTimeout: 10s        # of sessions that ask for none. Clients of the gateway always ask
//	minSessionTimeout: 3.6s    # three times the longest election at this tick
//	maxSessionTimeout: 60s
//	maxDataSize: 1048576       # bytes of a znode's data
//	maxTreeSize: 0             # bytes of memory for the znodes of a shard. 0: no limit
//	containerCheckInterval: 1m # how often the leader removes due containers and TTL znodes
//	holdLevel: 0               # keep the feature level at this, for a way back. 0: let it rise
//	slow: 125ms                # what takes longer is slow, and the log warns of it. Default: a
//	                           # quarter of the shortest election at this tick. Negative: never
//	superDigest: ""            # user:digest of the superuser, like ZooKeeper's superDigest
//	gateway:
//	  listen: ":2181"          # where clients connect. Required
//	  tls:                     # Default: plain text
//	    certFile: server.crt
//	    keyFile: server.key
//	    clientCAFile: ""       # authorities of clients' certificates, which become x509 identities
//	    clientCertRequired: false
//	  connectionsPerAddress: 60
//	  connections: 10000
//	  handshakes: 2000         # new sessions per second. Negative: no bound
//	  frameSize: 0             # bytes of a request. 0: what a znode of maxDataSize takes, at least 1048575
//	  outstanding: 1000        # requests that were read and not yet answered
//	  watchBytes: 67108864     # memory for the watches of one connection
//	  watches: 0               # number of watches of one connection. 0: no bound
//	  memory: 536870912        # memory for all connections. Above it, the largest one is ended
//	  writeTimeout: 10s        # for a client to read what it is sent
//	  firstFrame: 10s          # for a connection to send its first request
//	  readOnly: false          # serve reads without a quorum, to clients that ask for it
//	  words: [srvr]            # four-letter words that are answered. ["*"] means all of them
//	  advertise: ""            # where clients reach this member, for /zookeeper/config. Needs join
//	  reconfig: false          # let clients change the members, as ZooKeeper's reconfig does
//	  saslUsers: ""            # file of users who log in by SASL. All members need it, or none
//	  requireSASL: false       # serve no other clients
//	audit:                     # Default: nothing is recorded
//	  dir: /var/log/vivarium   # files with a record of each change. Required
//	  size: 67108864           # bytes of a file
//	  keep: 16                 # how many files are kept
//	  age: 0                   # keep records so long, and at most twice. 0: only keep counts
//	backup:                    # Default: none. See docs/backup.md of the repository
//	  dir: /backups/orders     # it must exist; best it is one volume that all members share
//	  every: 1h                # one member makes a backup, verifies it, and deletes old ones
//	  keep:                    # the newest of each of the last hours, days and weeks
//	    hourly: 24
//	    daily: 7
//	    weekly: 4
//	admin:                     # Default: nothing is answered over HTTP. See docs/admin.md
//	  listen: 127.0.0.1:8080   # Required
//	  tls:                     # Default: plain text. Read again once a minute
//	    certFile: admin.crt
//	    keyFile: admin.key
//	  tokensFile: tokens       # who may ask, and what. Required. Read again when it has changed
//	  hosts: []                # names that it may be asked under, besides IP addresses and localhost
//	  page: false              # a page for people, at /
//	  openProbes: false        # answer /livez, /readyz and /metrics without a token
//	  zooKeeper: false         # answer the commands of ZooKeeper's AdminServer, at /commands
//
// One file can serve all members: leave the id out and give each process its own, as in vivarium
// serve -config node.yaml -id 2. With join, leave advertise and name out: vivarium serve -config
// node.yaml -advertise pod-2.pods:7400 -name pod-2. The repository has manifests for Kubernetes in
// docs/kubernetes.md. Its folder examples/deploy has a unit for systemd, a Dockerfile and a file
// for Docker Compose.
//
// With -seed FILE a new ensemble begins with a backup. All members need the same file. A member
// whose directory is empty reads all of it first, and does nothing if it is damaged. Clients are
// served when the backup is loaded. An ensemble that has begun does not need the file again, and
// ignores another one with a warning in the log. See docs/backup.md of the repository.
//
// The types Config of package embed and of package embed/gateway say more about each key.
//
// serve logs to standard error, as text or (with -log json) as JSON. It never waits for a reader of
// the log. If lines are lost because nobody reads, it logs how many. The port opens early. The line
// "serving" appears when the ensemble has accepted the member and clients get answers. With
// Type=notify in the unit, systemd hears of that, and of the stop.
//
// SIGHUP makes the member read the files in tls, gateway.tls, gateway.saslUsers and admin.tls again
// at once. It does so every minute anyway. New connections use what it has read; what it cannot
// use, it logs.
//
// SIGTERM and SIGINT stop the member. It first closes its clients' connections; the clients'
// sessions live on, and the clients reattach them to other members. Then it transfers its
// leaderships. With ephemeral it also leaves the ensemble, for which it takes up to 30 seconds. If it
// cannot leave, it ends with an error: its directory is needed then, see the section on scaling. A
// second signal ends the process at once, like a crash. That is safe, but recovery takes longer.
//
// # shell
//
// The shell has the commands and flags of ZooKeeper's zkCli, and prints what zkCli prints. On a
// terminal it offers editing, history and completion. From a pipe it reads one command a line. It
// can also run a single command: vivarium shell -server host:port get /a. The command help lists
// the commands. The documentation of package shell lists the differences.
//
// # members
//
// members asks a member for the list, at the addresses in join and members of the config, and
// prints a line for each:
//
//	ID  ROLE     ANSWERS  BEHIND  ADDRESS        NAME   ZONE  LEAVING
//	2   voter    yes      0       10.0.0.2:7400  pod-b  east  -
//	4   voter    no       ?       10.0.0.4:7400  pod-d  west  silent
//	7   learner  yes      12      10.0.0.7:7400  pod-g  west  -
//
// BEHIND counts the log entries that the member lacks. LEAVING says why it is to go. Only the
// leader knows who answers: without one, the columns show a question mark, and the exit code is 1.
//
// With -remove N it takes member N out for good. If the voters that answer would be no quorum
// without it, the command says so and changes nothing. A member that runs leaves by itself with
// ephemeral: then SIGTERM is enough.
//
// The command speaks as a member does, so it needs what a member needs: with tls a certificate of
// the members' authority, without tls the way to a member's port. Anyone with that could join, too.
//
// # check
//
// check reads every byte that matters and changes none. If it calls a directory sound, the member
// starts, with everything that the member has acknowledged.
//
// An incomplete last record of the log is sound. A power cut leaves such a record, and nobody was
// told that it was durable.
//
// check does not look at files that nothing depends on: leftovers of a crash, and Pebble's log,
// which is empty. It also does not look inside a snapshot received from another member. The
// snapshot matters from its arrival until the member makes its own next one. If it is damaged, a
// start from it fails.
//
// # audit
//
// audit prints the records in a directory that serve writes with the key audit, also while it does.
// The records of any member have every change of the tree, whichever member was asked:
//
//	2026-01-31T14:02:11.5Z shard=1 zxid=0x1f delete "/a" session=0x1c member=2 who="digest:alice"
//
// Lines with start and gap are printed whatever the flags say, because they can mean that others
// are missing. docs/audit.md of the repository says more.
//
// # backup, verify, export, import
//
// backup asks a running member for a backup, at the addresses in join and members of the config,
// and prefers one that does not lead. It needs what the command members needs. With -dir it reads
// the directory of a stopped member instead. It writes beside FILE, syncs, reads everything again,
// and only then gives the file its name. Only its owner may read the file. It replaces an older
// backup of the ensemble, and no other file.
//
// verify refuses every byte that is not as it was written.
//
// export prints a line for each znode of a file, and an end with their number. With -config or -dir
// it prints those of a member. import creates the znodes of a backup or of such lines through the
// port for clients. It reads a file to its end first. -path limits both commands to a znode and what
// is below it.
//
// With -as, import puts that subtree elsewhere. -existing says what it does with a znode that
// exists; the value is fail, skip or overwrite. -prune deletes what the server has in the subtree
// and the file does not; it refuses lines without an end. It keeps ephemerals, what is above them,
// and what others change meanwhile. It prints a line for each znode that it keeps. -dry-run changes
// nothing and prints a line for each step. If an import is interrupted, the same command with skip
// or overwrite goes on.
//
// -auth says where a credential is, such as digest:super:password: in the first line of a file, in an
// environment variable, or with the person at the terminal. Among the arguments it would be seen by
// everybody on the machine, so it is refused there. -client-configuration is the shell's: a file with
// ZooKeeper's properties for TLS. copy has both for each side.
//
// A FILE named "-" is the standard output of backup, and the standard input of the others.
// docs/backup.md of the repository says what is in a backup, and what is not.
//
// # copy
//
// copy reads a subtree of a living ensemble of ZooKeeper or Vivarium as a client, and creates it
// through another server's port for clients. With -follow it goes on with the changes until the
// first SIGINT or SIGTERM; a second one ends it at once. Then it compares the paths, data and ACLs
// of both sides, and prints a digest of each. It never changes the source.
//
// It refuses to begin if source and target are in one tree, one within the other: it creates an
// ephemeral at the target and asks the source for it.
//
// It refuses to begin if the target has the subtree, unless -existing overwrite is given; -prune
// then deletes what the source has not. Containers and TTL znodes become persistent, because the
// protocol shows no difference, and ephemerals are left out. docs/migrating.md of the repository
// says more.
//
// # recover
//
// recover is for an ensemble whose majority is lost for good. It goes on from the directory of one
// member that still has its disk, voter or not. docs/runbook.md of the repository says when, and
// what is lost.
//
// With -look it changes nothing. It shows who the members are, how far the log of each shard
// reaches, and of several directories which has most.
//
// -i-have-stopped names all other voters. recover cannot know that they are dead: those that still
// run go on beside it until they meet the recovered member, and then stop. So it first asks all
// addresses in the directory, and those of -join. If the ensemble still has a leader, or a voter
// that is said to be stopped answers, it refuses and changes nothing. If members use TLS, it needs
// a member's certificate to ask: -cert, -key and -ca.
//
// If recover is interrupted, the member does not start. The same command goes on where it stopped.
//
// # user
//
// user reads a password, as the first line of the standard input, and prints the line that a user
// needs in the file gateway.saslUsers:
//
//	vivarium user alice < password >> users
//
// The line is as good as the password to anyone who can read it. docs/zookeeper-clients.md of the
// repository says how clients log in.
//
// # Exit codes
//
// Of every command, 0 means that all was read, done and written. What ends early is never a small
// success:
//   - An input that is cut or damaged ends with 1, and the file's name. The exceptions are what a
//     crash may leave behind, the torn last record of an audit file and of a log, and what people may
//     write themselves: lines without an end, of which import says so, and a script for the shell,
//     whose last line runs as it stands.
//   - An output that cannot be written, such as to a full disk, ends with 1 and a line on standard
//     error, also if all else was done.
//   - A name that is not there, or is a directory in place of a file or the other way round, ends with
//     2, before anything is done. What can be read and is something else ends with 1.
//   - A symbolic link stays one, and its file is written. A FIFO or a device gets the bytes as they
//     come, as standard output does; look at the code before you trust them.
//
// members ends with 1 if the ensemble refuses or does not answer in 30 seconds. The others:
//
//	     serve                       shell                        check
//	0    a signal stopped it         the last command succeeded   the directory is sound
//	1    it could not start,         the last command failed, or  the directory is damaged
//	     or it failed                there is no server
//	2    wrong command line          the last command was not     wrong command line; or no such
//	     or config                   understood                   directory; or a member runs on it;
//	                                 (130: interrupted)           or it cannot be read; or another
//	                                                              build wrote it
//
// audit, backup, convert, verify, export and import end with 1 if not all was done, and with 2 for a
// wrong command line or for a name that cannot be used.
//
// copy ends with 0 only if both sides are equal, and with 2 for a wrong command line. It ends with
// 1 if they differ, or if it could not compare them.
//
// user ends with 2 if it can make no line of the name and password.
//
// recover ends with 0 when it has looked, or recovered the directory; with 1 if the directory
// cannot be recovered; with 2 in the cases of check.
package main
