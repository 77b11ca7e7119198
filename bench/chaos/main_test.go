//go:build unix

package main

import (
	"bytes"
	"testing"
)

func TestParse(t *testing.T) {
	for _, args := range [][]string{
		{"-d", "5s"}, {"-d", "forever"}, {"-members", "4"}, {"-faults", "earthquake"}, {"-seed", "-1"}, {"now"}, {"-shards", "0"}, {"-shards", "65"},
	} {
		var out bytes.Buffer
		if s, err := parse(args, &out); err == nil || out.Len() == 0 {
			t.Errorf("%v: %+v, %v, said %q", args, s, err, &out)
		}
	}
	s, err := parse([]string{"-d", "30m", "-seed", "7", "-members", "3", "-shards", "4", "-faults", "kill,lag"}, &bytes.Buffer{})
	if err != nil || s.seed != 7 || s.members != 3 || s.shards != 4 {
		t.Errorf("%+v, %v", s, err)
	}
	if n := len(s.kinds()); n != 7 {
		t.Errorf("%d kinds of faults, want 6 kills and a lag", n)
	}
	if s, _ := parse(nil, &bytes.Buffer{}); s.seed == 0 || s.shards != 1 || len(s.kinds()) != len(faultKinds) {
		t.Errorf("without flags: %+v", s)
	}
}
