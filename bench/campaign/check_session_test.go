package campaign

import (
	"testing"

	"github.com/vivarium-go/vivarium/embed"
)

func get1(client, path, got string, mzxid embed.Zxid, version int32) op {
	return op{Client: client, Call: callGet, Path: path, Got: got, Stat: embed.Stat{Czxid: 1, Mzxid: mzxid, Version: version}}
}

func TestFindTimeTravel(t *testing.T) {
	none := get1("c", "/area0/a", "", 0, 0)
	none.Outcome = noNode
	hold(t, findTimeTravel, []badHistory{
		{"an own write is not seen", history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(3, 4, get1("c", "/area0/a", "w", 8, 1))), history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(3, 4, get1("d", "/area0/a", "w", 8, 1))), "does not show"},
		{"an own write's znode is not seen", history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(3, 4, none)), history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(3, 4, op{Client: "e", Call: callDelete, Path: "/area0/a"}), at(5, 6, none)), "does not show"},
		{"a read goes back", history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(3, 4, get1("d", "/area0/a", "x", 9, 2)), at(5, 6, get1("d", "/area0/a", "w", 8, 1))), history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(3, 4, get1("d", "/area0/a", "w", 8, 1)), at(5, 6, get1("d", "/area0/a", "x", 9, 2))), "does not show"},
		{"a read goes back in one of two areas", history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(3, 4, get1("d", "/area0/a", "x", 9, 2)), at(5, 6, get1("d", "/area1/a", "v", 4, 2)), at(7, 8, get1("d", "/area0/a", "w", 8, 1))), history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(3, 4, get1("d", "/area1/a", "v", 12, 2)), at(7, 8, get1("d", "/area0/a", "w", 8, 1))), "does not show"},
		{"another znode is older than what was seen", history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(1, 2, set("/area0/b", "y", 10, 1)), at(3, 4, get1("d", "/area0/b", "y", 10, 1)), at(5, 6, get1("d", "/area0/a", "w", 8, 1))), history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(1, 2, set("/area0/b", "y", 7, 1)), at(3, 4, get1("d", "/area0/b", "y", 7, 1)), at(5, 6, get1("d", "/area0/a", "w", 6, 1))), "does not show"},
	})
}

func TestFindTwoStats(t *testing.T) {
	refusal := set("/area0/a", "x", 0, 0)
	refusal.Outcome = notApplied
	maybe := refusal
	maybe.Outcome = unknown
	hold(t, findTwoStats, []badHistory{
		{"a set was applied twice", history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(3, 4, get1("d", "/area0/a", "x", 10, 3))), history1(at(1, 2, set("/area0/a", "x", 9, 2)), at(3, 4, get1("d", "/area0/a", "x", 9, 2))), "different Stats"},
		{"what was not applied is there", history1(at(1, 2, refusal), at(3, 4, get1("d", "/area0/a", "x", 9, 2))), history1(at(1, 2, maybe), at(3, 4, get1("d", "/area0/a", "x", 9, 2))), "was not applied"},
	})
}
