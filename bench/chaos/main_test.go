//go:build unix && !member

package main

import (
	"bytes"
	"testing"

	"github.com/vivarium-go/vivarium/bench/campaign"
)

func TestParse(t *testing.T) {
	for _, args := range [][]string{
		{"-d", "5s"}, {"-d", "forever"}, {"-members", "4"}, {"-faults", "earthquake"}, {"-seed", "-1"}, {"now"}, {"-shards", "0"}, {"-shards", "65"}, {"-mixed"}, {"-clients", "-upgrade", "previous"}, {"-grow"}, {"-upgrade", "previous", "-mixed", "-grow"},
	} {
		var out bytes.Buffer
		if s, _, err := parse(args, &out); err == nil || out.Len() == 0 {
			t.Errorf("%v: %+v, %v, said %q", args, s, err, &out)
		}
	}
	s, _, err := parse([]string{"-d", "30m", "-seed", "7", "-members", "3", "-shards", "4", "-faults", "kill,lag"}, &bytes.Buffer{})
	if err != nil || s.Seed != 7 || s.Members != 3 || s.Shards != 4 {
		t.Errorf("%+v, %v", s, err)
	}
	if n := len(s.Kinds()); n != 7 {
		t.Errorf("%d kinds of faults, want 6 kills and a lag", n)
	}
	all := campaign.Settings{Only: []string{""}}
	if s, _, _ := parse(nil, &bytes.Buffer{}); s.Seed == 0 || s.Shards != 1 || len(s.Kinds()) != len(all.Kinds()) {
		t.Errorf("without flags: %+v", s)
	}
}
