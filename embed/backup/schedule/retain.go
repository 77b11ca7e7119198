package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine/backupfile"
)

const stamp = "20060102T150405Z"

// fileName returns the name of a member's backup, without its lineage.
func fileName(at time.Time, member embed.MemberID) string {
	return fmt.Sprintf("vivarium-%s-%d.backup", at.UTC().Format(stamp), member)
}

// lineageLen is how many digits of a lineage are in a name. They tell apart ensembles that share a
// directory: their members make backups in the same second.
const lineageLen = 8

// withLineage adds the lineage to the name of a backup, if the ensemble has one.
func withLineage(name, lineage string) string {
	if lineage == "" {
		return name
	}
	return "vivarium-" + lineage[:lineageLen] + strings.TrimPrefix(name, "vivarium")
}

var (
	backupName = regexp.MustCompile(`^vivarium-(?:[0-9a-f]{8}-)?(\d{8}T\d{6}Z)-\d+\.backup$`)
	wasteName  = regexp.MustCompile(`^vivarium-\d{8}T\d{6}Z-\d+\.backup\.tmp-\d+$`)
)

// wasteAge is the age at which a file is a leftover that nobody writes to any more.
const wasteAge = 24 * time.Hour

// A kept is a backup in the directory.
type kept struct {
	name string
	at   time.Time
}

// retain deletes what Keep does not keep, now that there is a new backup, which is good. It returns
// how many backups it has deleted. It goes on after an error.
func retain(dir, newest string, info embed.BackupInfo, keep Keep) (deleted int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	young, err := os.Lstat(filepath.Join(dir, newest))
	if err != nil {
		return 0, err
	}
	var all []kept
	var errs []error
	remove := func(name string) bool {
		err := os.Remove(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // another member may have been faster
			errs = append(errs, err)
		}
		return err == nil
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case !e.Type().IsRegular():
		case wasteName.MatchString(name):
			// Both times are the file system's, so this member's clock does not matter.
			if i, err := e.Info(); err == nil && young.ModTime().Sub(i.ModTime()) > wasteAge {
				remove(name)
			}
		default:
			if at, ok := timeOf(name); ok && sameEnsemble(filepath.Join(dir, name), info) {
				all = append(all, kept{name, at})
			}
		}
	}
	for _, name := range superfluous(all, newest, keep) {
		if remove(name) {
			deleted++
		}
	}
	return deleted, errors.Join(errs...)
}

// timeOf returns the time in a name, if it is that of a backup.
func timeOf(name string) (at time.Time, ok bool) {
	m := backupName.FindStringSubmatch(name)
	if m == nil {
		return at, false
	}
	at, err := time.Parse(stamp, m[1])
	return at, err == nil
}

// sameEnsemble reports whether a file is a backup of the ensemble that another one is of. It reads
// the header. Without a lineage nobody knows.
func sameEnsemble(file string, info embed.BackupInfo) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	r, err := backupfile.NewReader(f)
	return err == nil && info.Lineage != "" && r.Header.Lineage == info.Lineage
}

// superfluous returns which backups are not to be kept. The newest is the one that was just made;
// those that seem to be later are kept and do not count.
func superfluous(all []kept, newest string, keep Keep) (names []string) {
	i := slices.IndexFunc(all, func(k kept) bool { return k.name == newest })
	if i < 0 {
		return nil
	}
	now := all[i].at
	all = slices.DeleteFunc(all, func(k kept) bool { return k.at.After(now) })
	slices.SortFunc(all, func(a, b kept) int {
		return cmp.Or(b.at.Compare(a.at), boolOrder(a.name == newest, b.name == newest), cmp.Compare(a.name, b.name))
	})
	stay := map[string]bool{newest: true}
	for _, rule := range []struct {
		n    int
		span time.Duration
	}{{keep.Hourly, time.Hour}, {keep.Daily, 24 * time.Hour}, {keep.Weekly, 7 * 24 * time.Hour}} {
		n, last := 0, time.Time{}
		for _, k := range all {
			span := k.at.Truncate(rule.span)
			if n > 0 && span.Equal(last) {
				continue
			}
			if n++; n > rule.n {
				break
			}
			last, stay[k.name] = span, true
		}
	}
	for _, k := range all {
		if !stay[k.name] {
			names = append(names, k.name)
		}
	}
	return names
}

// boolOrder orders what is true before what is false.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
