// Package shell is `vivarium shell`: a shell for servers that speak ZooKeeper's protocol, with the commands, flags and sentences of
// ZooKeeper's zkCli, so that hands and scripts that know that one know this one. It reads lines from a terminal or a pipe, or runs the one
// command that stands behind its flags.
//
// # What differs from zkCli
//
// The measure is zkCli 3.8, with the flags that 3.9 added: get -b and -x, set -b, removewatches -p and -r. Events are printed as by 3.8, without
// the zxid that 3.9 puts behind them. What differs:
//   - Exit codes. They are 0, 1 for a command that failed, 2 for one that was not understood, 130 when interrupted; a script's is that of its
//     last command. zkCli says 0 where a quota does not exist, where deleteall fails, and where there is no connection.
//   - A session that ends with the shell is closed, so its ephemerals go at once; zkCli leaves it to its timeout when a script or a lone command ends.
//   - A script and a lone command print nothing but what the commands print and watches tell: no greeting, no word of being connected, no log.
//   - Without a server a command fails when each of them has been tried once; zkCli fails after the first. Why is said on a line that begins
//     with "Cause: ". No command waits longer than -timeout for one answer.
//   - Java's names of exceptions are left out, as "org.apache.commons.cli.MissingArgumentException: ", and so are stack traces: a version that
//     is no number ends zkCli.
//   - help is a command, and lists on stdout what a wrong one lists on stderr. The line of the shell's own flags is this shell's.
//   - Of a -client-configuration's properties zookeeper.client.secure, zookeeper.ssl.trustStore.location, zookeeper.ssl.keyStore.location and
//     zookeeper.ssl.hostnameVerification count, and the stores are PEM files.
//   - "delete path version" heeds the version, and "get -s path watch" the path. setAcl -R prints errors on stderr, a line each. reconfig takes
//     -add and -remove more than once, and sends a -file as it is. removewatches, get and set show their newer flags.
//   - addauth waits for the server's answer, and fails if that refuses. sync fails when it prints that it has failed.
//   - An ACL without an entry is InvalidACL of the path, not of null.
//   - setquota is refused in a chroot, where zkCli writes what no server heeds.
//   - Output that cannot be written, as on a full disk, is a failure.
//   - deleteall says why it failed, on such a line, and has shorter transactions where paths are long.
//   - Lists are sorted. Data that is not UTF-8 is printed as it is. Lines of white space are no command.
//
// # On a terminal
//
// Lines are edited with golang.org/x/term, which the Go project keeps itself: arrows and Emacs' keys, a history kept in ~/.vivarium_history
// (the last historyMax lines, none with addauth's secrets), Tab for commands and for paths that the server has. Libraries that can do
// more, such as search in the history, are in fewer hands, and none of what zkCli's users are used to is missing here.
// A line of 4096 characters or more is refused, for a Terminal cuts it off. Ctrl-C empties the line, or ends the command that runs; Ctrl-D ends the shell.
//
// Read shell.go first, then options.go and data.go; rights.go, watch.go, quota.go and ensemble.go are the other commands, terminal.go and
// history.go what only people see, print.go how things look.
package shell
