package replication

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// A Log is what CheckLog found of a shard's log. The zero value means that the shard has none.
type Log struct {
	Exists bool
	// First is the first index that can still be applied. An image that does not reach First-1
	// lacks commands that no longer exist. (The log keeps some entries before First for the other
	// members. If it holds a received snapshot that was not installed yet, First is 1.)
	First uint64
	// Last is the last index. An image that is ahead of it belongs to another log.
	Last uint64
	// Term is the newest term that this replica took part in. Vote is the member it voted for in
	// that term, zero if none.
	Term uint64
	Vote MemberID
	// Torn is the size of a last record that was not written whole, as a power cut leaves it. It was
	// never acknowledged. Zero if there is none.
	Torn int64

	first uint64 // the first entry after the log's own snapshot; zero: the log has no entries
}

// CheckLog returns what the log of a shard holds, and whether there is one at all.
//
// It calls known for each command of the entries after the given index. Those are applied after a
// start, and an error of known is one that the node would fail with then.
//
// If the log cannot be read, the error is ErrLog. CheckLog opens the log through c.Disk and changes
// files. So give it a View, and do not call it while a Host is open.
func CheckLog(c Config, shard ShardID, after uint64, known func(cmd []byte) error) (log Log, err error) {
	bridge.set()
	c = c.withDefaults()
	dir, exists, err := logDir(c)
	if err != nil || !exists {
		return Log{}, err
	}
	files := &checkedFiles{fileSystem: newFileSystem(c.Disk), asked: make(map[string]bool)}
	defer func() { err = errors.Join(err, files.closeAll()) }()
	err = guard(func() error {
		log, err = readLog(files, dir, uint64(shard), uint64(c.Member), after, known)
		return err
	})
	if err != nil {
		return Log{}, fmt.Errorf("%w: shard %d in %s: %w; %s", ErrLog, shard, dir, err, WayOut)
	}
	return log, nil
}

// VerifyLog is a slower CheckLog that reads all of the shard's log. A start does not read the files
// that were completed. It finds damage in one of them only when an entry in it is needed.
func VerifyLog(c Config, shard ShardID, after uint64, known func(cmd []byte) error) (Log, error) {
	c = c.withDefaults()
	dir, exists, err := logDir(c)
	if err != nil || !exists {
		return Log{}, err
	}
	folder := filepath.Join(dir, "tandb", fmt.Sprintf("node-%d-%d", shard, c.Member))
	names, err := c.Disk.List(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Log{}, err
	}
	whole := []string{filepath.Join(dir, "tandb", "bootstrap", fmt.Sprintf("BOOTSTRAP-%d-%d", shard, c.Member))}
	var lists []string
	for _, name := range names {
		file, indexed := strings.CutSuffix(name, ".index")
		switch name = filepath.Join(folder, name); {
		case indexed:
			whole = append(whole, name, filepath.Join(folder, file+".log"))
		case filepath.Base(name) == "CURRENT":
			whole = append(whole, name)
		case strings.HasPrefix(filepath.Base(name), "MANIFEST-"):
			lists = append(lists, name)
		}
	}
	if err := errors.Join(checkWhole(c.Disk, whole), checkSnapshots(c.Disk, snapshotsDir(dir, uint64(shard), uint64(c.Member)))); err != nil {
		return Log{}, err
	}
	torn := checkWhole(c.Disk, lists) // before tan opens the log, which may write a new list of the same name
	log, err := CheckLog(c, shard, after, known)
	if err != nil {
		err = errors.Join(torn, err) // a crash may tear a list, so that alone is no damage
	}
	return log, err
}

// checkWhole returns an error for each file that does not end with a whole record. It ignores
// missing files.
func checkWhole(d Disk, files []string) error {
	var errs []error
	for _, name := range files {
		size, end, err := measure(d, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, fmt.Errorf("%w: %s: %w; %s", ErrLog, name, err, WayOut))
		case end < size:
			errs = append(errs, fmt.Errorf("%w: %s: damaged at byte %d; %s", ErrLog, name, end, WayOut))
		}
	}
	return errors.Join(errs...)
}

// snapshotName matches the names of the folders of complete snapshots.
var snapshotName = regexp.MustCompile(`^snapshot-[0-9A-F]+$`)

// checkSnapshots returns an error for each snapshot in dir that a start could not identify. If a
// crash came right after a snapshot was made, the file that describes it is still there, and a
// start reads it. It has eight bytes of a checksum and then the description. checkSnapshots does
// not look at the snapshot itself.
func checkSnapshots(d Disk, dir string) error {
	names, err := d.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, name := range names {
		if !snapshotName.MatchString(name) {
			continue // a start removes it
		}
		name = filepath.Join(dir, name, "dragonboat.snapshot.message")
		data, err := readFile(d, name, 1<<20)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, fmt.Errorf("%w: %s: %w; %s", ErrLog, name, err, WayOut))
		case len(data) < 8 || !bytes.Equal(data[:8], flagSum(data[8:])):
			errs = append(errs, fmt.Errorf("%w: %s: the checksum does not match; %s", ErrLog, name, WayOut))
		}
	}
	return errors.Join(errs...)
}

// flagSum returns dragonboat's checksum of the content of a flag file.
func flagSum(data []byte) []byte {
	sum := md5.Sum(data)
	return sum[8:]
}

// measure returns the size of a file and the end of its last whole record.
func measure(d Disk, name string) (size, end int64, err error) {
	f, err := d.OpenForRead(name)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	end, _, err = findEnd(f)
	return info.Size(), end, err
}

// checkedFiles records which files tan asks for.
type checkedFiles struct {
	*fileSystem
	asked map[string]bool // used by one goroutine only
}

// Stat records the name.
func (f *checkedFiles) Stat(name string) (os.FileInfo, error) {
	f.asked[name] = true
	return f.fileSystem.Stat(name)
}

// readLog opens the log in dir and returns what it holds.
func readLog(files *checkedFiles, dir string, shard, replica, after uint64, known func(cmd []byte) error) (log Log, err error) {
	folder := filepath.Join(dir, "tandb", fmt.Sprintf("node-%d-%d", shard, replica))
	torn := int64(0)
	if err := cutTailsIn(files.disk, folder, func(_ string, size int64) { torn += size }); err != nil {
		return Log{}, err
	}
	newest, err := newestLog(files, folder)
	if err != nil {
		return Log{}, err
	}
	nhc := config.NodeHostConfig{Expert: config.ExpertConfig{FS: files, LogDB: logConfig()}}
	db, err := tan.Factory.Create(nhc, nil, []string{dir}, []string{dir})
	if err != nil {
		return Log{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	log, err = extent(db, files.disk, dir, shard, replica)
	log.Torn = torn
	// tan mistakes a damaged list of its files for a short one, and a missing list for a new log.
	// It asks for every file on the list when it opens. The newest file with content must be among
	// them.
	if err == nil && newest != "" && !files.asked[newest] {
		err = fmt.Errorf("the list of log files does not name %s", newest)
	}
	if err == nil && log.first > 0 {
		err = readCommands(db, shard, replica, max(after+1, log.first), log.Last, known)
	}
	return log, err
}

// newestLog returns the newest of tan's files in dir that is not empty. It returns an empty name if
// there is none.
func newestLog(files *checkedFiles, dir string) (string, error) {
	names, err := files.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	slices.Sort(names) // names have six digits, and more only from a million on
	for _, name := range slices.Backward(names) {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		info, err := files.fileSystem.Stat(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		if info.Size() > 0 {
			return filepath.Join(dir, name), nil
		}
	}
	return "", nil
}

// logDir finds tan's directory, under any name that the host had when it wrote it.
func logDir(c Config) (dir string, exists bool, err error) {
	if _, err := c.Disk.Stat(c.raftDir()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", false, nil
		}
		return "", false, err
	}
	folders, err := subfolders(c.Disk, c.raftDir())
	if err != nil || len(folders) == 0 {
		return "", false, err
	}
	if len(folders) > 1 {
		return "", false, fmt.Errorf("%w: %s must hold one folder, it holds %v", ErrLog, c.raftDir(), folders)
	}
	dir = filepath.Join(c.raftDir(), folders[0], fmt.Sprintf("%020d", c.Deployment))
	_, err = c.Disk.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return dir, err == nil, err
}

// checkBytes is about how much of a log is read at once to check its commands.
const checkBytes = 4 << 20

// readCommands calls known for the commands of a log from one index to another.
func readCommands(db raftio.ILogDB, shard, replica, from, to uint64, known func(cmd []byte) error) error {
	for from <= to {
		entries, _, err := db.IterateEntries(nil, 0, shard, replica, from, to+1, checkBytes)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return fmt.Errorf("entry %d is missing", from)
		}
		for _, e := range entries {
			if err := checkEntry(e, known); err != nil {
				return fmt.Errorf("entry %d: %w", e.Index, err)
			}
		}
		from += uint64(len(entries))
	}
	return nil
}

// checkEntry calls known for the command of an entry, if it has one. dragonboat puts a byte before
// each command that says how to read it, and panics over one that it does not know. It is zero for
// commands as they are.
func checkEntry(e raftpb.Entry, known func(cmd []byte) error) error {
	switch {
	case e.Type != raftpb.EncodedEntry:
		return nil
	case len(e.Cmd) == 0 || e.Cmd[0] != 0:
		return fmt.Errorf("it begins with % .1x, which this build does not know: start the build that wrote it, or a newer one", e.Cmd)
	}
	return known(appendUnmasked(nil, e.Cmd[1:]))
}

func extent(db raftio.ILogDB, d Disk, dir string, shard, replica uint64) (Log, error) {
	_, err := db.GetBootstrapInfo(shard, replica)
	if errors.Is(err, raftio.ErrNoBootstrapInfo) {
		return Log{}, nil
	}
	if err != nil {
		return Log{}, err
	}
	ss, err := db.GetSnapshot(shard, replica)
	if err != nil {
		return Log{}, err
	}
	log := Log{Exists: true, Last: ss.Index}
	if log.First, err = firstIndex(d, dir, shard, replica, ss); err != nil {
		return Log{}, err
	}
	rs, err := db.ReadRaftState(shard, replica, ss.Index)
	if errors.Is(err, raftio.ErrNoSavedLog) {
		log.Exists = ss.Index > 0
		return log, nil
	}
	if err != nil {
		return Log{}, err
	}
	if raftpb.IsEmptyState(rs.State) {
		return Log{}, errors.New("term and vote are missing")
	}
	log.Term, log.Vote = rs.State.Term, MemberID(rs.State.Vote)
	if rs.EntryCount > 0 {
		log.first = rs.FirstIndex
		log.Last = rs.FirstIndex + rs.EntryCount - 1
	}
	return log, nil
}

// shrunkSize is the size of a snapshot file whose content was removed after the snapshot was
// installed: dragonboat's header, sixteen bytes of its own, a checksum and a trailer. A file with
// content is larger.
const shrunkSize = 1024 + 16 + 4 + 16

// snapshotsDir returns the directory of a shard's snapshots.
func snapshotsDir(dir string, shard, replica uint64) string {
	return filepath.Join(dir, fmt.Sprintf("snapshot-part-%d", shard), fmt.Sprintf("snapshot-%d-%d", shard, replica))
}

// firstIndex returns the first index that can be applied after the snapshot ss. Usually ss only
// records that the image was made durable. Then only images that reach it are accepted.
func firstIndex(d Disk, dir string, shard, replica uint64, ss raftpb.Snapshot) (uint64, error) {
	if raftpb.IsEmptySnapshot(ss) {
		return 1, nil
	}
	if ss.Dummy {
		return ss.OnDiskIndex + 1, nil
	}
	name := filepath.Join(snapshotsDir(dir, shard, replica), fmt.Sprintf("snapshot-%016X", ss.Index), fmt.Sprintf("snapshot-%016X.gbsnap", ss.Index))
	info, err := d.Stat(name)
	if err != nil {
		return 0, err
	}
	if info.Size() <= shrunkSize {
		return ss.OnDiskIndex + 1, nil
	}
	return 1, nil
}
