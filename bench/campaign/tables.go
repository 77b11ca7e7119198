package campaign

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// figures asks a member's gateway for the figures of mntr.
func (e *ensemble) figures(ctx context.Context, id embed.MemberID) (map[string]int64, error) {
	c, err := e.host.Dial(ctx, id)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := io.WriteString(c, wordMonitor); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(c)
	if err != nil {
		return nil, err
	}
	found := make(map[string]int64)
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			found[key] = n
		}
	}
	return found, nil
}

// wordMonitor is the word that figures sends.
const wordMonitor = "mntr"

// expectTables waits until the tables of every member have no more sessions and ephemerals than
// those that may be alive. All others are closed or must expire. It reports a violation if that
// takes longer than all timeouts of the campaign allow.
func (c *campaign) expectTables(w *workload) {
	ctx, cancel := limit(context.Background(), tablesMax)
	defer cancel()
	var alive, markers int64
	for _, l := range w.h.snapshot().Lives {
		if w.e.mayLive(&l) {
			alive++
			markers += int64(len(l.Markers) + l.Perhaps)
		}
	}
	for _, id := range w.e.here() {
		for why := "?"; why != ""; pause(ctx, 10*tick) {
			f, err := w.e.figures(ctx, id)
			switch sessions, ephemerals := f["zk_global_sessions"], f["zk_ephemerals_count"]; {
			case err != nil && ctx.Err() == nil:
				why = err.Error()
			case err != nil: // what was seen last is more of a reason
			case sessions > alive || ephemerals > markers:
				why = fmt.Sprintf("it has %d sessions and %d ephemerals, but only %d and %d may be alive", sessions, ephemerals, alive, markers)
			default:
				c.report.count(sectionChecks, "tables without sessions that are over", 1)
				why = ""
			}
			if why != "" && ctx.Err() != nil {
				c.report.violate("growth", "member %d, %v after everything was healed and closed: %s", id, tablesMax, why)
				return
			}
		}
	}
}
