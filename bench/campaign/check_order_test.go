package campaign

import (
	"testing"

	"github.com/vivarium-go/vivarium/embed"
)

func set(path, data string, mzxid embed.Zxid, version int32) op {
	return op{Client: "c", Call: callSet, Path: path, Data: data, Version: embed.AnyVersion, Stat: embed.Stat{Czxid: 1, Mzxid: mzxid, Version: version}}
}

func TestFindDisorder(t *testing.T) {
	sync := func(z embed.Zxid) op { return op{Client: "s", Call: callSyncGet, Path: "/area0/b", Zxid: z} }
	crowd := func(data string, mzxid embed.Zxid, place int) op {
		o := set("/area0/a", data, mzxid, int32(place))
		o.Crowd = place
		return o
	}
	hold(t, findDisorder, []badHistory{
		{"a later write comes before an acknowledged one", history1(at(1, 2, set("/area0/a", "x", 9, 1)), at(3, 4, set("/area0/b", "y", 8, 1))), history1(at(1, 3, set("/area0/a", "x", 9, 1)), at(2, 4, set("/area0/b", "y", 8, 1))), "has a smaller zxid than"},
		{"a Sync misses an acknowledged write", history1(at(1, 2, set("/area0/a", "x", 9, 1)), at(3, 4, sync(8))), history1(at(1, 2, set("/area0/a", "x", 9, 1)), at(2, 4, sync(8))), "synced only up to 8"},
		{"writes of one session overtake one another", past{Grants: []grant{granted(1, 10, 20, guarded{Outcome: applied, Mzxid: 9}, guarded{Outcome: applied, Mzxid: 8})}}, past{Grants: []grant{granted(1, 10, 20, guarded{Outcome: applied, Mzxid: 8}, guarded{Outcome: unknown}, guarded{Outcome: applied, Mzxid: 9})}}, "was issued after"},
		{"a set overtakes one that was issued before it", history1(at(1, 2, crowd("x", 9, 1)), at(1, 2, crowd("y", 8, 2))), history1(at(1, 2, crowd("x", 8, 1)), at(1, 2, crowd("y", 9, 2))), "was issued after"},
		{"an order in one area, among others", history1(at(1, 2, set("/area1/a", "x", 9, 1)), at(3, 4, set("/area0/a", "x", 5, 1)), at(5, 6, set("/area1/a", "y", 4, 2))), history1(at(1, 2, set("/area1/a", "x", 9, 1)), at(3, 4, set("/area0/a", "x", 5, 1)), at(5, 6, sync(5))), "has a smaller zxid than"},
		{"two writes are one", history1(at(1, 2, set("/area0/a", "x", 9, 1)), at(1, 2, set("/area0/b", "y", 9, 1))), history1(at(1, 2, set("/area0/a", "x", 9, 1)), at(1, 2, set("/area1/b", "y", 9, 1))), "have the same zxid"},
	})
}
