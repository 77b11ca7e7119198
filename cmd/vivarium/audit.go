package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/audit"
)

// printAudit prints the records of a member that match the flags, the oldest first.
func printAudit(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("audit", "[-path /a [-below]] [-session ID] [-since 2h] [-until 1h] DIR", stderr)
	var q audit.Query
	flags.StringVar(&q.Path, "path", "", "only this znode")
	flags.BoolVar(&q.Below, "below", false, "with -path, also the znodes below it")
	flags.Func("session", "only this session; an `ID` as the records print it", func(s string) error {
		id, err := strconv.ParseInt(s, 0, 64)
		q.Session = embed.SessionID(id)
		return err
	})
	now := time.Now()
	flags.Func("since", "only what came after this `time`, such as 2026-01-31T14:00:00Z, or this long ago, such as 2h", moment(&q.Since, now))
	flags.Func("until", "only what came before this `time`, or this long ago", moment(&q.Until, now))
	if code, ok := parse(flags, args, 1); !ok {
		return code
	}
	if err := isKind(flags.Arg(0), true); err != nil {
		return failWith(err, "audit", exitUsage, stderr)
	}
	ctx, stop := untilStopped(ctx)
	defer stop()
	out := bufio.NewWriter(stdout)
	var failed error
	for r, err := range audit.Search(flags.Arg(0), q) {
		if failed = err; failed == nil {
			failed = ctx.Err()
		}
		if failed == nil {
			_, failed = fmt.Fprintln(out, r)
		}
		if failed != nil {
			break
		}
	}
	if err := out.Flush(); failed == nil {
		failed = err
	}
	return said(failed, "audit", func() {}, stderr)
}

// moment returns a flag's function that reads a time, or how long ago it was.
func moment(to *time.Time, now time.Time) func(string) error {
	return func(s string) error {
		if ago, err := time.ParseDuration(s); err == nil {
			*to = now.Add(-ago)
			return nil
		}
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return fmt.Errorf("want a time such as 2026-01-31T14:00:00Z, or a duration such as 2h")
		}
		*to = t
		return nil
	}
}
