// Backup measures what a backup costs those who write meanwhile. Three members are in one process.
// Writers on all of them set znodes, in windows that take turns: without a backup, and while a
// follower makes one backup after the other to a file. The ratio is that of the two windows of one
// round.
//
//	go run ./backup -znodes 100000 -writers 16 -rounds 7
//
// The members, the writers and the backup share one machine and one disk. So the ratio also has
// what the backup takes from the other members, which machines of their own would not lose.
package main
