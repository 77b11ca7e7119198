package session

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// TestVerify loads records that no table can have drained.
func TestVerify(t *testing.T) {
	spoken := Origin{Member: 1, Start: 1, LastSeq: 1}
	record := Record{ID: 10, Timeout: time.Second, Origin: 1}
	for _, c := range []struct {
		name     string
		origins  []Origin
		records  []Record
		changes  []tree.Change
		complain string
	}{
		{name: "sound", origins: []Origin{spoken}, records: []Record{record}},
		{name: "no origin", records: []Record{record}, complain: "never registered"},
		{name: "another founding", origins: []Origin{spoken, {Member: 2, Start: 1, Digest: [32]byte{1}}}, complain: "founding digest"},
		{name: "silence without steps", origins: []Origin{{Member: 1, Start: 1, LastSeq: 1, Silence: 1}}, complain: "after 0 steps"},
		{name: "steps without silence", origins: []Origin{{Member: 1, Start: 1, LastSeq: 1, Steps: 1}}, complain: "after 1 steps"},
		{name: "negative silence", origins: []Origin{{Member: 1, Start: 1, LastSeq: 1, Steps: 1, Silence: -1}}, complain: "silence -1ns"},
		{name: "remote session before any batch", origins: []Origin{{Member: 1, Start: 2}}, records: []Record{{ID: 10, Timeout: time.Second, Origin: 1, Attached: 5}}},
		{
			name: "silence before any batch, of a remote session", origins: []Origin{{Member: 1, Start: 2, Steps: 1, Silence: 1}},
			records: []Record{{ID: 10, Timeout: time.Second, Origin: 1, Attached: 5}},
		},
		{
			name: "former is the origin", origins: []Origin{spoken}, complain: "member 1 that speaks now",
			records: []Record{{ID: 10, Timeout: time.Second, Origin: 1, Attached: 5, Shards: []uint32{2}, Former: []Incarnation{{1, 1}}}},
		},
		{
			name: "former of an in-process session", origins: []Origin{spoken}, complain: "in-process",
			records: []Record{{ID: 10, Timeout: time.Second, Origin: 1, Shards: []uint32{2}, Former: []Incarnation{{2, 1}}}},
		},
		{
			name: "former without shards", origins: []Origin{spoken}, complain: "no other shard",
			records: []Record{{ID: 10, Timeout: time.Second, Origin: 1, Attached: 5, Former: []Incarnation{{2, 1}}}},
		},
		{
			name: "former twice", origins: []Origin{spoken}, complain: "name a member twice",
			records: []Record{{ID: 10, Timeout: time.Second, Origin: 1, Attached: 5, Shards: []uint32{2}, Former: []Incarnation{{2, 1}, {2, 2}}}},
		},
		{name: "end that is kept in mind", origins: []Origin{spoken}, records: []Record{{ID: 10, Ended: 7, Former: []Incarnation{{1, 1}}}}},
		{
			name: "end kept for a member that is retired", origins: []Origin{{Member: 1, Start: 2}}, complain: "should acknowledge",
			records: []Record{{ID: 10, Ended: 7, Former: []Incarnation{{1, 1}}}},
		},
		{name: "session before any batch", origins: []Origin{{Member: 1, Start: 1}}, records: []Record{record}, complain: "before its first batch"},
		{
			name: "ephemeral without a session", origins: []Origin{spoken},
			changes:  []tree.Change{{Type: tree.Created, Path: "/a", Owner: 11}},
			complain: `session 11 has no record but owns "/a"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := NewTable()
			for _, r := range c.records {
				if err := table.LoadRecord(r); err != nil {
					t.Fatal(err)
				}
			}
			for _, o := range c.origins {
				table.LoadOrigin(o)
			}
			table.Track(c.changes)
			err := table.Verify()
			if c.complain == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.complain) {
				t.Errorf("got %v, want %q", err, c.complain)
			}
		})
	}
}

func TestLoadRecordRefuses(t *testing.T) {
	table := NewTable()
	good := Record{ID: 10, Timeout: time.Second, Origin: 1}
	if err := table.LoadRecord(good); err != nil {
		t.Fatal(err)
	}
	former := []Incarnation{{2, 1}}
	for _, r := range []Record{
		good, {Timeout: 1, Origin: 1}, {ID: 11, Origin: 1}, {ID: 11, Timeout: 1},
		{ID: 11, Ended: 7}, {ID: 11, Ended: 7, Former: former, Origin: 1}, {ID: 11, Ended: 7, Former: former, Attached: 5},
		{ID: 11, Timeout: 1, Origin: 1, Shards: []uint32{3, 2}}, {ID: 11, Timeout: 1, Origin: 1, Lost: true},
	} {
		if err := table.LoadRecord(r); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// A Drain that could not be written is complete when it is repeated.
func TestDrainFailure(t *testing.T) {
	table := crowd(t, 0, false, false)
	for id := tree.SessionID(1); id <= forgetLen+2; id++ {
		if err := table.Open(id, [16]byte{}, time.Second, 1, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	table.Close(1, 0, true)
	full := errors.New("full")
	err := table.Drain(func(Origin) error { return full }, nil)
	if !errors.Is(err, full) {
		t.Fatalf("got %v", err)
	}
	err = table.Drain(func(Origin) error { return nil }, func(id tree.SessionID, _ Record, _ bool) error {
		if id == 5 {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) {
		t.Fatalf("got %v", err)
	}
	var store image
	store.drain(t, table)
	if len(store.origins) != 1 || len(store.sessions) != forgetLen+1 {
		t.Errorf("drained %d origins and %d sessions", len(store.origins), len(store.sessions))
	}
	store = image{}
	if store.drain(t, table); len(store.origins)+len(store.sessions) != 0 {
		t.Errorf("drained twice: %+v", store)
	}
}

func TestSessions(t *testing.T) {
	table := crowd(t, 5, true, false)
	if _, err := table.Register(Origin{Member: 2, Start: 1}); err != nil {
		t.Fatal(err)
	}
	table.Accept(2, 1, 1)
	if err := table.Open(3000, [16]byte{7}, time.Second, 2, 0, nil); err != nil {
		t.Fatal(err)
	}
	if got := table.Sessions(2); len(got) != 1 || !reflect.DeepEqual(got[0], Record{ID: 3000, Password: [16]byte{7}, Timeout: time.Second, Origin: 2}) {
		t.Errorf("sessions at member 2: %+v", got)
	}
	got := table.Sessions(1)
	if len(got) != 5 {
		t.Fatalf("sessions at member 1: %+v", got)
	}
	for i, r := range got {
		if r.ID != tree.SessionID(i+1) {
			t.Errorf("session %d comes at place %d", r.ID, i)
		}
	}
}
