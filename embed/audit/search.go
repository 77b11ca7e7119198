package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// A Query says which records Search returns. Those that match every field that is not zero.
type Query struct {
	// Path is a znode, in the whole tree.
	Path string
	// Below adds the znodes below Path.
	Below bool
	// Session is the session that asked, or whose end changed a znode.
	Session embed.SessionID
	// Since and Until bound the time of a record. They are compared with the clocks of members that
	// were asked, which may differ.
	Since, Until time.Time
}

// matches reports whether a record is asked for. One that says what is missing, or that the member
// has started, always is: without it, the answer could look complete.
func (q *Query) matches(r *embed.AuditRecord) bool {
	switch {
	case !q.Since.IsZero() && r.Time.Before(q.Since), !q.Until.IsZero() && r.Time.After(q.Until):
		return false
	case r.Op == gapOp || r.Op == "start" || r.Op == "recover":
		return true
	case q.Session != 0 && r.Session != q.Session:
		return false
	case q.Path == "" || r.Path == q.Path:
		return true
	}
	return q.Below && strings.HasPrefix(r.Path, strings.TrimSuffix(q.Path, "/")+"/")
}

// Search yields the records in a directory that match a query, in the order in which they were
// recorded. It may run beside the File that writes there. Records that say what is missing are
// among the results whatever the query, unless they are outside its time.
//
// Lines that are no records are skipped: a crash may have torn them. A file that cannot be read hides
// no other. An error is the last value, and its record is zero. A directory that is not one of a File
// is an error, because no record would look like an answer.
func Search(dir string, q Query) iter.Seq2[embed.AuditRecord, error] {
	return func(yield func(embed.AuditRecord, error) bool) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			yield(embed.AuditRecord{}, fmt.Errorf("audit: %w", err))
			return
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		files := numbers(names)
		if len(files) == 0 && !slices.Equal(names, []string{lockName}) {
			yield(embed.AuditRecord{}, fmt.Errorf("audit: %s has no audit files", dir))
			return
		}
		var errs []error
		for _, n := range files {
			more, err := searchFile(filepath.Join(dir, nameOf(n)), &q, yield)
			if !more {
				return
			}
			if err != nil {
				errs = append(errs, err)
			}
		}
		if err := errors.Join(errs...); err != nil {
			yield(embed.AuditRecord{}, fmt.Errorf("audit: %w", err))
		}
	}
}

// searchFile yields what one file has. It returns false for more if nobody wants any.
func searchFile(
	name string, q *Query, yield func(embed.AuditRecord, error) bool,
) (more bool, err error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) { // it was too old, just now
		return true, nil
	}
	if err != nil {
		return true, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, lineMax)
	for {
		text, err := in.ReadSlice('\n')
		if r, ok := decode(text); ok && q.matches(&r) && !yield(r, nil) {
			return false, nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull): // a torn line may be of any length
			return true, err
		}
	}
}
