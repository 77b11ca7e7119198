package entry

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
)

// M26: nobody founds because nobody answers, but a founder that is the only one, and whom
// Config.Found does not answer instead. M27: a founder that is late, or died before it had stored
// that it has founded, is one of them. One whose directory the others do not know has lost its own.
// M104: a member of an ensemble with another name is nobody, but where one founds alone. M131: two that
// say that they are one founder found nothing. M148: an ensemble may be where Join leads and nobody
// answers. M161: or where a former member does. M149: all founders say first with which directories
// they found.
func TestMayFound(t *testing.T) {
	const shards = 2
	own, lost := [16]byte{1}, [16]byte{9}
	three, one := []MemberID{1, 2, 3}, []MemberID{1}
	fresh := func(m MemberID) ask.Answer {
		return ask.Answer{Founder: m, Founders: three, Ensemble: "e", Shards: shards, Directory: [16]byte{byte(m)}}
	}
	all := map[MemberID][16]byte{1: own, 2: {2}, 3: {3}}
	met := func(a ask.Answer, with map[MemberID][16]byte) ask.Answer { a.Directories = with; return a }
	started := func(m MemberID, with [16]byte) ask.Answer {
		return ask.Answer{Member: m, Founders: three, Directories: map[MemberID][16]byte{1: with, 2: {2}, 3: {3}}, Ensemble: "e", Directory: [16]byte{byte(m)}}
	}
	was := func(m MemberID) ask.Answer { return ask.Answer{Was: m, Ensemble: "e", Directory: [16]byte{byte(m)}} }
	away := []ask.Silence{{Name: "spare:1", Why: "spare:1: away"}}
	twin := func(a ask.Answer) ask.Answer { a.Directory[1] = 9; return a }
	old := func(a ask.Answer) ask.Answer { a.Lineage = session.Lineage{7}; return a }
	other := func(a ask.Answer) ask.Answer { a.Founders = []MemberID{1, 3}; return a }
	foreign := func(a ask.Answer) ask.Answer { a.Ensemble, a.Lineage = "another", session.Lineage{8}; return a }
	says := func(yes bool, err error) func(context.Context) (bool, error) {
		return func(context.Context) (bool, error) { return yes, err }
	}
	for name, c := range map[string]struct {
		founders []MemberID
		found    func(context.Context) (bool, error)
		former   bool                  // it was in the ensemble
		before   map[MemberID][16]byte // whom it has met
		answers  []ask.Answer
		silent   []ask.Silence
		want     []MemberID
		waits    bool
	}{
		"all are fresh":                         {founders: three, answers: []ask.Answer{met(fresh(2), all), met(fresh(3), all)}, want: three},
		"one is missing":                        {founders: three, answers: []ask.Answer{fresh(2)}, waits: true},
		"one has another list":                  {founders: three, answers: []ask.Answer{fresh(2), other(fresh(3))}, waits: true},
		"M27: it comes late":                    {founders: three, answers: []ask.Answer{started(2, own), started(3, own)}, want: three},
		"M27: it comes later than one":          {founders: three, answers: []ask.Answer{started(2, own), fresh(3)}, want: three},
		"M27: it is late, and one has died":     {founders: three, answers: []ask.Answer{started(2, own)}, want: three},
		"M148: Join is silent":                  {founders: three, answers: []ask.Answer{met(fresh(2), all), met(fresh(3), all)}, silent: away, waits: true},
		"M148: a sole founder's Join is silent": {founders: one, silent: away, waits: true},
		"M148: it is silent, and one founded":   {founders: three, answers: []ask.Answer{started(2, own)}, silent: away, want: three},
		"M161: one was a member":                {founders: three, answers: []ask.Answer{met(fresh(2), all), met(fresh(3), all), was(4)}, waits: true},
		"M161: one was, of another ensemble":    {founders: three, answers: []ask.Answer{met(fresh(2), all), met(fresh(3), all), foreign(was(4))}, want: three},
		"M161: one was, beside a sole founder":  {founders: one, answers: []ask.Answer{was(4)}, waits: true},
		"M161: one was, and one has founded":    {founders: three, answers: []ask.Answer{started(2, own), was(4)}, want: three},
		"M162: one waits for its own":           {founders: three, answers: []ask.Answer{met(fresh(2), all), met(fresh(3), all), other(fresh(4))}, want: three},
		"M149: one has not met all":             {founders: three, answers: []ask.Answer{met(fresh(2), all), fresh(3)}, waits: true},
		"M149: one has met another one":         {founders: three, answers: []ask.Answer{met(fresh(2), all), met(fresh(3), map[MemberID][16]byte{1: lost, 2: {2}, 3: {3}})}, waits: true},
		"M149: it has met another one itself":   {founders: three, before: map[MemberID][16]byte{1: own, 2: {2}, 3: lost}, answers: []ask.Answer{met(fresh(2), all), met(fresh(3), all)}, waits: true},
		"M27: it has lost its directory":        {founders: three, answers: []ask.Answer{started(2, lost), started(3, lost)}},
		"M27: the ensemble has a lineage":       {founders: three, answers: []ask.Answer{fresh(2), old(started(3, own))}},
		"the ensemble has other founders":       {founders: three, answers: []ask.Answer{fresh(2), other(started(3, own))}},
		"M104: another ensemble's is there":     {founders: three, answers: []ask.Answer{met(fresh(2), all), met(fresh(3), all), foreign(started(4, own))}, want: three},
		"M104: a founder has another Ensemble":  {founders: three, answers: []ask.Answer{fresh(2), foreign(started(3, own))}, waits: true},
		"M104: another one's, and the only one": {founders: one, answers: []ask.Answer{foreign(started(4, own))}},
		"it was in the ensemble":                {founders: three, former: true, answers: []ask.Answer{fresh(2), fresh(3)}},
		"M131: two are one founder":             {founders: three, answers: []ask.Answer{fresh(2), fresh(3), twin(fresh(3))}, waits: true},
		"M131: another one has its id":          {founders: three, answers: []ask.Answer{fresh(2), fresh(3), twin(fresh(1))}, waits: true},
		"it is none of them":                    {answers: []ask.Answer{fresh(2), fresh(3)}},
		"M26: the only one, and nobody answers": {founders: one, want: one},
		"M26: the only one, and one answers":    {founders: one, answers: []ask.Answer{old(started(2, lost))}},
		"M26: Found says no":                    {found: says(false, nil), waits: true},
		"M26: Found says nothing":               {found: says(false, errors.New("down")), waits: true},
		"Found panics":                          {found: func(context.Context) (bool, error) { panic("a defect") }, waits: true},
		"Found ends its goroutine":              {found: func(context.Context) (bool, error) { runtime.Goexit(); return true, nil }, waits: true},
		"Found says yes":                        {found: says(true, nil), want: one},
		"Found says yes, and a member answers":  {found: says(true, nil), answers: []ask.Answer{started(2, own)}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Ensemble: "e", Shards: shards, Found: c.found, Members: make(map[MemberID]string)}
			for _, m := range c.founders {
				o.Member, o.Members[m] = 1, ""
			}
			id := replication.Identity{Directory: own}
			if c.former {
				id.Former = replication.Former{Member: 1, Directory: lost}
			}
			e := newEntry(o, id)
			if c.before != nil {
				e.met.Store(&c.before)
			}
			found, err := e.mayFound(t.Context(), c.answers, c.silent)
			got := slices.Sorted(maps.Keys(found))
			if !reflect.DeepEqual(got, c.want) || (err != nil) != c.waits {
				t.Errorf("founds with %v, %v; want %v, and that it waits: %v", got, err, c.want, c.waits)
			}
		})
	}
}

// M133: a member that is starting has data, and is no fresh founder for others that ask it. Nor is a
// node that has not looked yet.
func TestAnswer_OffersItselfOnlyWhenItHasLooked(t *testing.T) {
	e := newEntry(Options{Member: 1, Members: map[MemberID]string{1: "", 2: "", 3: ""}}, replication.Identity{})
	var a ask.Answer
	if e.Answer(&ask.Question{}, &a); a.Founder != 0 || a.Member != 0 {
		t.Errorf("it has not looked: %+v", a)
	}
	e.offers.Store(true)
	if e.Answer(&ask.Question{}, &a); a.Founder != 1 {
		t.Error("it does not offer itself")
	}
}

func newEntry(o Options, me replication.Identity) *Entry {
	identity := &datadir.IdentityFile{}
	identity.Set(me)
	o.Roster = roster.New(identity, o.Members, slog.New(slog.DiscardHandler))
	return New(o)
}
