package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine/offline"
)

// recoverFlags are the flags of recover.
type recoverFlags struct {
	look, accept  bool
	stopped, gone string
	join          string
	cert, key, ca string
}

func (f *recoverFlags) define(to *flag.FlagSet) {
	to.BoolVar(&f.look, "look", false, "only show what the directories have, and which has most")
	to.BoolVar(&f.accept, "accept-data-loss", false, "accept that acknowledged writes may be lost")
	to.StringVar(&f.stopped, "i-have-stopped", "", "the ids of all other voters, separated by commas: none of them runs, nor will again as what it was")
	to.StringVar(&f.gone, "gone-for-good", "", "the ids of those of them whose machines or disks are gone for certain: needed if nobody knows their addresses")
	to.StringVar(&f.join, "join", "", "addresses of members to ask once more, separated by commas, besides those in the directory")
	to.StringVar(&f.cert, "cert", "", "this member's certificate, if members use TLS")
	to.StringVar(&f.key, "key", "", "its key")
	to.StringVar(&f.ca, "ca", "", "the authorities of the members' certificates")
}

func recoverMember(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	var f recoverFlags
	flags := newFlags("recover", "-look DIR...\n       vivarium recover -accept-data-loss -i-have-stopped 2,3 DIR", stderr)
	f.define(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	dirs := flags.Args()
	fail := func(code int, err error) int {
		fmt.Fprintf(stderr, "vivarium recover: %v\n", err)
		return code
	}
	switch {
	case len(dirs) == 0:
		return fail(exitUsage, errors.New("name the data directory of a stopped member"))
	case f.look:
		if err := lookAt(dirs, stdout); err != nil {
			return fail(exitOf(err), err)
		}
		return exitOK
	case len(dirs) > 1:
		return fail(exitUsage, fmt.Errorf("an ensemble goes on from one directory, and %d are named: choose one with -look", len(dirs)))
	case !f.accept || f.stopped == "":
		return fail(exitUsage, errors.New("it drops what the other members have and this one lacks, and a member that still runs goes on beside it.\n"+
			"Look with -look who they are, stop them, and say so: -accept-data-loss -i-have-stopped with the ids of all other voters"))
	}
	o, err := f.options(dirs[0])
	if err != nil {
		return fail(exitUsage, err)
	}
	r, err := offline.Recover(ctx, o)
	if err != nil {
		return fail(exitOf(err), err)
	}
	sayRecovered(&r, stdout)
	return exitOK
}

// exitOf returns the exit code for an error: a directory that can be read, and not recovered, has
// its own.
func exitOf(err error) int {
	if errors.Is(err, offline.ErrRecover) {
		return exitFailed
	}
	return exitUsage
}

func (f *recoverFlags) options(dir string) (o offline.RecoverOptions, err error) {
	o.Dir = dir
	if o.Stopped, err = idsOf("-i-have-stopped", f.stopped); err != nil {
		return o, err
	}
	if f.gone != "" {
		if o.Gone, err = idsOf("-gone-for-good", f.gone); err != nil {
			return o, err
		}
	}
	if f.join != "" {
		o.Join = strings.Split(f.join, ",")
	}
	if f.cert == "" && f.key == "" && f.ca == "" {
		return o, nil
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return o, fmt.Errorf("-cert and -key: %w", err)
	}
	authorities, err := os.ReadFile(f.ca)
	if err != nil {
		return o, fmt.Errorf("-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return o, fmt.Errorf("-ca: %s holds no PEM certificate", f.ca)
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool}
	return o, nil
}

func idsOf(flag, list string) (ids []embed.MemberID, err error) {
	for _, text := range strings.Split(list, ",") {
		id, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		if err != nil || id == 0 {
			return nil, fmt.Errorf("%s has %q: give ids of members, separated by commas, as in 2,3", flag, text)
		}
		ids = append(ids, embed.MemberID(id))
	}
	return ids, nil
}

// lookAt shows what directories have. It shows those that can be read even if others cannot.
func lookAt(dirs []string, w io.Writer) error {
	var all []offline.Remains
	var errs []error
	for _, dir := range dirs {
		r, err := offline.Look(dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, r)
		sayRemains(&r, w)
	}
	if len(all) > 1 {
		fmt.Fprintln(w, sayMost(all))
	}
	return errors.Join(errs...)
}

func sayRemains(r *offline.Remains, w io.Writer) {
	fmt.Fprintf(w, "%s: member %d%s, lineage %v%s\n", r.Dir, r.Member, ofEnsemble(r.Ensemble), r.Lineage, state(r))
	for _, m := range remaining(r) {
		fmt.Fprintf(w, "  member %d: %s%s\n", m, strings.Join(partsOf(r, m), ", "), whereIs(r, m))
	}
	for _, s := range r.Shards {
		fmt.Fprintf(w, "  shard %d: last entry %d of term %d, zxid %#x; image to entry %d; %s\n", s.Shard, s.Last, s.Term, uint64(s.Newest), s.Applied, unknown(s))
	}
}

// state says what else is to know of a directory.
func state(r *offline.Remains) string {
	switch {
	case r.Recovering:
		return "; a recovery was interrupted: run it again"
	case r.Recovered:
		return "; recovered, and not started since"
	case r.Out != "":
		return "; out of the ensemble: " + r.Out
	}
	return ""
}

func unknown(s offline.ShardRemains) string {
	if n := s.Unknown(); n > 0 {
		return fmt.Sprintf("the last %d are not known to be committed", n)
	}
	return "all are known to be committed"
}

// remaining returns all members that vote or learn on any shard.
func remaining(r *offline.Remains) (ids []embed.MemberID) {
	for _, s := range r.Shards {
		ids = slices.Concat(ids, s.Members.Voters, s.Members.Learners)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// partsOf returns what a member is on the shards, each once.
func partsOf(r *offline.Remains, m embed.MemberID) (list []string) {
	for _, s := range r.Shards {
		switch {
		case slices.Contains(s.Members.Voters, m):
			list = append(list, "voter")
		case slices.Contains(s.Members.Learners, m):
			list = append(list, "learner")
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// whereIs says what the table of members has of a member.
func whereIs(r *offline.Remains, m embed.MemberID) string {
	for _, known := range r.Members {
		if embed.MemberID(known.ID) == m && known.Address != "" {
			return " at " + known.Address
		}
	}
	return ""
}

// sayMost says which directory has most.
func sayMost(all []offline.Remains) string {
	for i := range all {
		if all[i].Lineage != all[0].Lineage {
			return fmt.Sprintf("%s and %s are of different lineages: they are no copies of one ensemble", all[0].Dir, all[i].Dir)
		}
	}
	for i := range all {
		less := func(other offline.Remains) bool { more, ok := all[i].Compare(&other); return !ok || more < 0 }
		if !slices.ContainsFunc(all, less) {
			return fmt.Sprintf("%s has most, or as much as any", all[i].Dir)
		}
	}
	return "none has most on every shard: choose by the shards that matter"
}

func sayRecovered(r *offline.Remains, w io.Writer) {
	if r.Recovered {
		fmt.Fprintf(w, "%s: it was recovered before: start member %d\n", r.Dir, r.Member)
		return
	}
	for _, s := range r.Shards {
		fmt.Fprintf(w, "shard %d: zxids to %#x are certain", s.Shard, uint64(s.Certain))
		if s.Newest > s.Certain {
			fmt.Fprintf(w, "; those to %#x are kept, and nobody knows whether they were acknowledged", uint64(s.Newest))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "What the lost majority acknowledged beyond them, nobody can know.\n%s: recovered: start member %d now. It is alone until others join it.\n", r.Dir, r.Member)
}
