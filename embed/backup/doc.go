// Package backup reads what embed.Node.Backup has written: it verifies a backup, shows the znodes
// in it, and creates them again in a living tree.
//
//	info, err := backup.Verify(file)
//
//	r, err := backup.NewReader(file)
//	report, err := backup.Import(ctx, backup.Session(session), r.Znodes(), backup.Options{})
//
// # Lines
//
// WriteLines and Lines have the same znodes as text, a JSON object a line, in the order of a
// backup. It is for looking into a backup, and for moving a part of a tree:
//
//	{"path":"/a","text":"data","mode":"persistent","acl":[…],…}
//	{"end":1}
//
// The last line is the end, with the number of znodes. Without it, some may be missing: a damaged
// backup gives good lines up to the damage. So Prune needs it, and whoever writes or filters lines
// by hand leaves it out.
//
// Data is in text if it is valid UTF-8, and otherwise in data, as base64. A znode whose data is nil
// has neither. A line also has what an import does not use: zxids, times, versions, the create
// counter and the owner.
//
// # Into a living tree
//
// Import takes all znodes, or a subtree, and creates it at the same path or at another. Options say
// what happens to znodes that exist, whether those are deleted that the backup does not have, and
// whether it is only a dry run. An import writes as any session does, so watches see it and ACLs
// and quotas count. It is not atomic: if it ends with an error, some of the steps are done. With
// Skip or Overwrite, the same call goes on.
//
// # What an import does not bring back
//
// Znodes get new zxids, times and versions. The counter of a parent's sequence numbers counts what
// the import creates, so it may be lower than before, and numbers may come again. An import leaves
// out ephemerals, which belong to sessions that have ended, and everything below /zookeeper, so
// quotas must be set anew. Only /zookeeper of the whole tree is meant, in the backup and at the target.
package backup
