package embed

import (
	"context"
	"io"
)

// AskBackup has a member make a backup, from a process that is none, and writes the backup to w. It
// asks at the addresses in cfg.Join and cfg.Members, with cfg.TLS, a member that does not lead if
// one answers there. The members must be of cfg.Ensemble. Nothing else of cfg counts. A member
// makes one backup at a time for others. Only a nil error says that w has a backup.
//
// Whoever can join an ensemble can ask. So a member with Config.Admit, which decides that, refuses.
// With TLS it takes a member's certificate, and without TLS the way to a member's port.
//
// Errors: ErrUnavailable if no member answers; an error that says why the member makes no backup;
// ctx's error; those of w.
func AskBackup(ctx context.Context, cfg Config, w io.Writer) error {
	c, log, err := cfg.visit()
	defer log.Flush(closeLeast)
	if err == nil {
		err = c.Backup(ctx, w)
	}
	return opError("ask backup", "", err)
}

// Backup writes a backup of the whole tree to w while the ensemble runs. Any member can do it; one
// that does not lead is the best choice. docs/backup.md says how to keep, verify and restore it,
// and package embed/backup reads it.
//
// Everything that was acknowledged anywhere before the call is in the backup, and each shard is as
// it was after one of its transactions: the backup has a Multi whole or not at all. Different
// shards may be some milliseconds apart. The file has znodes with data, ACLs and Stats, and no
// sessions. An ACL may have digests of passwords, so keep the file secret.
//
// Writes go on meanwhile, whatever w does. Until Backup returns, the node's disk keeps what they
// replace. Backup gives up with ErrSlowBackup when that is more than 4 GiB for a shard. Its memory
// is some 256 KiB, and the largest znode. Backup never calls w again after it has returned. If a
// Write hangs, so does Backup; but once ctx ends, the disk keeps nothing for it any more.
//
// Only after a nil error w has a backup. Whoever reads a part of one notices. The caller must make
// w durable.
//
// Errors: ErrUnavailable without a quorum, for which Backup waits until ctx ends, or for
// Config.RequestTimeout if ctx has no deadline; ctx's error; an error of w; ErrSlowBackup,
// ErrClosed, ErrFailed; and an error about a damaged image.
func (n *Node) Backup(ctx context.Context, w io.Writer) (BackupInfo, error) {
	info, err := n.in().Engine.Backup(ctx, w)
	return info, opError("backup", "", err)
}
