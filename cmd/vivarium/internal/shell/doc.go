// Package shell is `vivarium shell`, a shell for servers that speak ZooKeeper's protocol. It has
// the commands, flags and texts of ZooKeeper's zkCli, so what people know and scripts expect of
// zkCli works here too. It reads lines from a terminal or a pipe, or runs the one command given
// after its flags.
//
// # Differences from zkCli
//
// The model is zkCli 3.8, with the flags that 3.9 added: get -b and -x, set -b, removewatches -p
// and -r. Events are printed as in 3.8, without the zxid that 3.9 appends. The differences are:
//   - Exit codes. They are 0, 1 for a command that failed, 2 for a command that was not understood,
//     and 130 after an interrupt. A script has the code of its last command. zkCli returns 0 if a
//     quota does not exist, if deleteall fails, and if there is no connection.
//   - When the shell ends, it closes its session, so its ephemerals are deleted at once. After a
//     script or a single command, zkCli leaves the session to its timeout.
//   - A script or a single command prints only what commands print and what watches see. It prints
//     no greeting, no line about the connection, and no log.
//   - Without a server, a command fails after each server has been tried once. zkCli fails after
//     the first. A line that begins with "Cause: " says why. No command waits longer than -timeout
//     for one answer.
//   - The names of Java's exceptions are left out, such as
//     "org.apache.commons.cli.MissingArgumentException: ", and so are stack traces. A version that
//     is not a number is an ordinary error; it ends zkCli.
//   - help is a command. It prints to stdout the list that an unknown command prints to stderr. The
//     line with the shell's own flags describes this shell.
//   - Of the properties in a -client-configuration, these matter: zookeeper.client.secure,
//     zookeeper.ssl.trustStore.location, zookeeper.ssl.keyStore.location and
//     zookeeper.ssl.hostnameVerification. The stores are PEM files.
//   - "delete path -1" works, as ZooKeeper's documents have it; zkCli takes -1 for a flag.
//   - "delete path version" uses the version, and "get -s path watch" uses the path. setAcl -R
//     prints errors to stderr, a line for each. reconfig accepts -add and -remove more than once,
//     and sends a -file as it is. The help of removewatches, get and set shows their newer flags.
//   - addauth waits for the server's answer, and fails if the server refuses. sync fails when it
//     prints that it has failed.
//   - For an ACL without an entry, the error InvalidACL names the path, not null.
//   - setquota is refused in a chroot. zkCli writes a quota there that no server enforces.
//   - Output that cannot be written, for example to a full disk, is a failure.
//   - deleteall says why it failed, on a line that begins with "Cause: ". Its transactions are
//     shorter where paths are long.
//   - Lists are sorted. Data that is not UTF-8 is printed as it is. A line of white space is not a
//     command.
//
// # Locks
//
// Three commands are this shell's own. They work with the locks and elections of Vivarium, of
// Curator and of kazoo, on any server:
//
//   - locks path prints every lock and election at the path and below it: who holds it, who waits,
//     which session, since when, and the note. Then it prints the deadlocks. It reads all znodes
//     there one by one.
//   - revoke path asks the holders of a lock to give it up. They may ignore that.
//   - evict contender deletes the znode of a holder or waiter that locks has shown. A holder may
//     not know yet that it holds nothing, while the next one already does.
//
// Neither revoke nor evict touches anything but ephemerals with the name of a contender.
//
// # On a terminal
//
// golang.org/x/term, which the Go project maintains, edits lines. It offers arrows and Emacs' keys.
// Tab completes commands, and paths that exist on the server. The history is kept in
// ~/.vivarium_history: the last historyMax lines, without the secrets of addauth. Other libraries
// can do more, such as search the history, but fewer people maintain them. Users of zkCli miss
// nothing here.
//
// A line of 4096 characters or more is refused, because a Terminal cuts it off. Ctrl-C clears the
// line, or ends the running command. Ctrl-D ends the shell.
package shell
