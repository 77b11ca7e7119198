package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/vivarium-go/vivarium/engine/offline"
)

// advice says what to do with a damaged directory.
const advice = `The other members carry on without it while they are a majority. Restore the whole directory from a
copy that was made after the member last ran. Do not empty it or a part of it: the others refuse a
member that has forgotten what it promised.
`

func check(_ context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("check", "DIR", stderr)
	if code, ok := parse(flags, args, 1); !ok {
		return code
	}
	dir := flags.Arg(0)
	if err := isKind(dir, true); err != nil {
		return failWith(err, "check", exitUsage, stderr)
	}
	r, err := offline.Check(dir)
	if err != nil {
		return failWith(err, "check", exitUsage, stderr)
	}
	for _, s := range r.Shards {
		fmt.Fprintf(stdout, "shard %d: %s\n", s.Shard, sayShard(s))
	}
	if r.Damaged() {
		if r.Err != nil {
			fmt.Fprintln(stdout, indented(r.Err))
		}
		fmt.Fprintf(stdout, "%s: damaged\n%s", dir, advice)
		return exitFailed
	}
	fmt.Fprintf(stdout, "%s: sound: member %d%s, started %d times\n", dir, r.Member, ofEnsemble(r.Ensemble), r.Starts)
	return exitOK
}

func sayShard(s offline.ShardReport) string {
	text := fmt.Sprintf("sound: %d znodes, %d sessions, zxid %#x; image of level %d at entry %d, log to entry %d", s.Znodes, s.Sessions, uint64(s.Zxid), s.Level, s.Applied, s.Last)
	switch {
	case s.Err != nil:
		return "damaged: " + indented(s.Err)
	case s.Applied == 0:
		text = fmt.Sprintf("sound: no image yet, log to entry %d", s.Last)
	}
	if s.Torn > 0 {
		text += fmt.Sprintf("; %d bytes behind it are of a write that did not end, as a power cut leaves it", s.Torn)
	}
	return text
}

// indented writes an error of several lines as one item of a list.
func indented(err error) string { return strings.ReplaceAll(err.Error(), "\n", "\n  ") }

func ofEnsemble(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" of the ensemble %q", name)
}
