// Package zkdir reads the data directories of a stopped ZooKeeper server, versions 3.4 to 3.9.
//
//	t, err := zkdir.Read(dataDir, logDir)
//	for path, z := range t.Znodes() { … } // parents first
//
// # What is in a directory
//
// A server writes a log of its transactions and, now and then, a snapshot. It goes on changing the
// tree while it writes a snapshot. So a snapshot has some transactions that are newer than the one
// in its name, and of these perhaps only a part. Read does what ZooKeeper does at a start. It loads
// the newest snapshot that is sound, and applies every transaction of the log after the one in its
// name. A transaction whose outcome the snapshot has already is forgiven.
//
// # What is refused
//
// Read refuses what ZooKeeper would load, if the outcome might not be a state that clients saw:
//
//   - a log that does not go as far as the snapshot, as when files were copied from a living server;
//   - a gap between transactions, as when a file is missing;
//   - a wrong checksum, length or end mark, and anything behind the end of a log. Only a last record
//     that was cut while it was written is the end of its log, as ZooKeeper has it. Nobody was told
//     that it is done. Tree.Cut says that there was one;
//   - a tree whose digest is not the one that the server had logged, from 3.6 on.
//
// # Memory
//
// The whole tree is in memory, and one file of the log at a time. A snapshot that gzip has compressed
// may have 64 MiB, or 100 times the bytes of its file if that is more. Unpack a larger one yourself.
package zkdir
