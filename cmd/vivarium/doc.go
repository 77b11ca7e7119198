// Vivarium runs a member of an ensemble as a process of its own, for those who want a server in ZooKeeper's place and not a library in
// their service: its clients, recipes, shells and monitors work against it unchanged.
//
//	vivarium serve -config node.yaml    run a member, with a port for ZooKeeper's clients
//	vivarium shell -server host:port    speak to a server, this one or ZooKeeper's, as ZooKeeper's zkCli does
//	vivarium check DIR                  verify the data directory of a stopped member
//	vivarium version
//	vivarium help [command]
//
// To install it as one static binary:
//
//	CGO_ENABLED=0 go install github.com/vivarium-go/vivarium/cmd/vivarium@latest
//
// # serve
//
// Two lines are enough for a server that is alone:
//
//	dir: data
//	gateway: {listen: "127.0.0.1:2181"}
//
// All the keys, with what they are if they are not given; keys that there are not are refused:
//
//	dir: /var/lib/vivarium     # all that the member persists; a relative one is taken from where the process was started. Required
//	id: 1                      # this member; required beside members, here or as -id N
//	members:                   # the founding members and where they listen for one another, the same on all of them; none: alone
//	  1: 10.0.0.1:7400
//	  2: 10.0.0.2:7400
//	  3: 10.0.0.3:7400
//	listen: ""                 # where this member listens for the others: its address in members if that is an IP address
//	                           # or localhost, else the port of it on all interfaces
//	ensemble: ""               # a name; members of another do not talk to this one. Fixed at founding
//	shards: 1                  # Raft groups, fixed at founding; more than one give up one order for the whole tree
//	tls:                       # mutual TLS between members; none: plain text
//	  certFile: member.crt
//	  keyFile: member.key
//	  caFile: members-ca.crt
//	tick: 50ms                 # of heartbeats and elections, the same on every member
//	requestTimeout: 5s         # what waits for a quorum gives up then; a stop takes up to three times as long
//	minSessionTimeout: 3.6s    # three times the longest election at this tick
//	maxSessionTimeout: 60s
//	maxDataSize: 1048576       # bytes of a znode's data
//	maxTreeSize: 0             # bytes of memory that the znodes of a shard may take; 0: no bound
//	containerCheckInterval: 1m # how often the leader removes containers and TTL znodes whose time has come
//	superDigest: ""            # user:digest of who may do everything, as ZooKeeper's superDigest
//	gateway:
//	  listen: ":2181"          # where clients connect. Required
//	  tls:                     # none: plain text
//	    certFile: server.crt
//	    keyFile: server.key
//	    clientCAFile: ""       # authorities of clients' certificates, which make them x509 identities
//	    clientCertRequired: false
//	  connectionsPerAddress: 60
//	  connections: 10000
//	  frameSize: 1048575       # bytes of a request; to raise with maxDataSize
//	  outstanding: 1000        # requests that were read and not answered yet
//	  watchBytes: 67108864     # what the watches of one connection take
//	  memory: 536870912        # what all connections hold; beyond it the greediest is ended
//	  writeTimeout: 10s        # for a client to read what it is sent
//	  firstFrame: 10s          # for a connection to say what it wants
//	  words: [srvr]            # four-letter words that are answered; ["*"] is all of them
//
// One file serves all members if it has no id and each process is told its own: vivarium serve -config node.yaml -id 2.
// Pods need a Service and ordinals that fit: docs/kubernetes.md of the repository has them.
//
// Package embed and package embed/gateway say more of each in their types Config. What serve has to say goes to standard error, in
// lines of text or (-log json) of JSON; it does not wait for whoever reads them, and says how many were lost when they did not. "serving" is the line that comes when the ensemble has taken the member in and clients are answered; the port is open
// before. SIGTERM and SIGINT close the member: clients' connections first, whose sessions live on for them to take to another member,
// then it hands its leaderships over. A second signal ends it at once, as a crash would, which costs nothing but time.
//
// # shell
//
// It has the commands and flags of ZooKeeper's zkCli and prints what that prints: on a terminal with editing, history and completion, or a command
// a line from a pipe, or one command behind the flags (vivarium shell -server host:port get /a). "help" lists the commands, and the doc of
// package shell says where it differs.
//
// # check
//
// It reads every byte that counts and changes none. What it calls sound starts, with all that the member had acknowledged. A last record of the log
// that is not whole is sound: a power cut leaves such a one, of which nobody was told that it was durable. Files that nothing depends on
// are not looked at: what a crash left behind, and Pebble's log (there is nothing in it). Nor is what is in a snapshot from another member, which
// counts from when it has come until the member's next one: a start on such a one that is damaged fails.
//
// # Exit codes
//
//	     serve                        shell                        check
//	0    it was stopped by a signal   the last command succeeded   the directory is sound
//	1    it could not start, or       it failed, or there is no    it is damaged
//	     failed                       server
//	2    the command line or the      it was not understood        the command line; there is no such directory, a member
//	     config                       (130: interrupted)           runs on it, it cannot be read, or a newer version wrote it
package main
