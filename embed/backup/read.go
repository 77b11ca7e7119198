package backup

import (
	"io"
	"iter"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine/backupfile"
)

// Errors of a file. A file that needs a higher feature level than this build reads is refused with
// embed.ErrLevel.
var (
	ErrNotBackup = backupfile.ErrNotBackup // it does not begin as a backup does
	ErrCorrupt   = backupfile.ErrCorrupt   // it is damaged or incomplete
	ErrNewer     = backupfile.ErrNewer     // a newer version has written it, in a format of its own
)

// Verify reads a whole backup, and returns what it has. Nil says that each byte of it is as
// embed.Node.Backup wrote it, and that nothing is missing. The memory it needs is that of one
// block.
//
// Errors: ErrNotBackup, ErrCorrupt, ErrNewer, embed.ErrLevel, and those of r.
func Verify(r io.Reader) (embed.BackupInfo, error) {
	in, err := backupfile.NewReader(r)
	if err != nil {
		return embed.BackupInfo{}, err
	}
	for err == nil {
		_, err = in.Next()
	}
	if err != io.EOF {
		return embed.BackupInfo{}, err
	}
	return in.Info(), nil
}

// A Reader reads a backup once. It is not safe for concurrent use.
type Reader struct{ in *backupfile.Reader }

// NewReader reads the beginning of a backup. Its errors are those of Verify.
func NewReader(r io.Reader) (*Reader, error) {
	in, err := backupfile.NewReader(r)
	if err != nil {
		return nil, err
	}
	return &Reader{in}, nil
}

// Znodes yields the znodes of all shards, shard by shard and in byte order of their paths, so that
// a parent comes before its children. What several shards have, it yields once. The sequence can be
// read once. It ends after an error, which is one of Verify's.
//
// Each znode is what it was when it was backed up. Whether the file is whole is known only at the
// end: use what was yielded as a backup only if no error came.
func (r *Reader) Znodes() iter.Seq2[Znode, error] {
	return func(yield func(Znode, error) bool) {
		for {
			rec, err := r.in.Next()
			switch {
			case err == io.EOF:
				return
			case err != nil:
				yield(Znode{}, err)
				return
			case rec.Shard > 1 && onAll(rec.Path):
				continue
			case !yield(znodeOf(rec.Path, int(rec.Shard), rec.Znode), nil):
				return
			}
		}
	}
}
