package campaign

import (
	"testing"
	"time"
)

func TestFindEarlyDeathsAndImmortals(t *testing.T) {
	born := at(1000, 1010, op{Call: callCreate, Path: "/area0/mortals/a", TTL: 20 * time.Second})
	seen := func(from int, o outcome, calms ...calm) past {
		return past{Ops: []op{born, at(from, from+1, op{Call: callSyncGet, Path: "/area0/mortals/a", Outcome: o})}, Calms: calms}
	}
	jumped := seen(12000, noNode)
	jumped.Jumps = []jump{{5 * time.Second, sleepMax}}
	hold(t, findEarlyDeaths, []badHistory{
		{"gone too early", seen(20000, noNode), seen(21000, noNode), "its TTL is 20s"},
		{"it is still there", seen(20000, noNode), seen(20000, applied), "is gone"},
		{"no clock jumped", seen(12000, noNode), jumped, "is gone"},
	})
	whole := calm{0, time.Hour}
	hold(t, findImmortals, []badHistory{
		{"it stays", seen(26000, applied, whole), seen(22000, applied, whole), "its TTL is 20s"},
		{"it is gone", seen(26000, applied, whole), seen(26000, noNode, whole), "still there"},
		{"undisturbed", seen(26000, applied, whole), seen(26000, applied, calm{0, time.Second}, calm{6 * time.Second, time.Hour}), "still there"},
		{"in a calm", seen(26000, applied, whole), seen(26000, applied, calm{0, 25 * time.Second}), "still there"},
	})
}
