package campaign

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
)

// ledgerTree is the tree after one number and one payment.
func ledgerTree() []entry {
	tree := []entry{
		{Path: a0},
		{Path: a0 + numbersPath, Stat: embed.Stat{NumChildren: 1, Cversion: 1}},
		{Path: a0 + numbersPath + "/n-0000000000", Data: "a", Stat: embed.Stat{Czxid: 5}},
		{Path: a0 + paidPath, Stat: embed.Stat{NumChildren: 1, Cversion: 1}},
		{Path: a0 + paidPath + "/p-0000000000", Data: "b 0 1", Stat: embed.Stat{Czxid: 6}},
	}
	for i, balance := range []string{"-1", "1", "0", "0"} {
		z := entry{Path: account(a0, i), Data: balance}
		if balance != "0" {
			z.Stat.Version = 1
		}
		tree = append(tree, z)
	}
	return tree
}

func TestFindLosses(t *testing.T) {
	number := op{Client: "c", Call: callCreate, Path: a0 + numbersPath + "/n-", Data: "a", Got: a0 + numbersPath + "/n-0000000000"}
	pay := op{Client: "c", Call: callPay, Path: a0 + paidPath + "/p-", Data: "b 0 1", Got: a0 + paidPath + "/p-0000000000"}
	with := func(o op, outcome outcome) op {
		o.Outcome = outcome
		return o
	}
	ops := []op{at(1, 2, number), at(3, 4, pay)}
	if found := findLosses(&past{Ops: ops}, ledgerTree()); len(found) > 0 {
		t.Errorf("found in a good tree: %q", found)
	}
	cases := []struct {
		name string
		ops  []op
		edit func(tree []entry) []entry
		want string
	}{
		{"a number is lost", append(ops, at(5, 6, op{Client: "c", Call: callCreate, Path: a0 + numbersPath + "/n-", Data: "c", Got: "?"})), nil, "is lost"},
		{"a number has another name", []op{at(1, 2, op{Client: "c", Call: callCreate, Path: a0 + numbersPath + "/n-", Data: "a", Got: "?"})}, nil, "acknowledged as ?"},
		{"a payment that did not happen", []op{at(1, 2, with(pay, notApplied))}, nil, "not applied, but exists"},
		{"a number given twice", ops, func(tree []entry) []entry {
			tree[1].Stat = embed.Stat{NumChildren: 2, Cversion: 2}
			return append(tree, entry{Path: a0 + numbersPath + "/n-0000000001", Data: "a", Stat: embed.Stat{Czxid: 7}})
		}, "applied 2 times"},
		{"a number left out", ops, func(tree []entry) []entry {
			tree[2].Path = a0 + numbersPath + "/n-0000000001"
			return tree
		}, "follows 0 others"},
		{"a child counted that is not there", ops, func(tree []entry) []entry {
			tree[3].Stat.Cversion++
			return tree
		}, "child version 2"},
		{"a number is lost in another area", append(ops, at(5, 6, op{Client: "c", Call: callCreate, Path: "/area1" + numbersPath + "/n-", Data: "c", Got: "?"})), func(tree []entry) []entry {
			return append(tree, entry{Path: "/area1"}, entry{Path: "/area1" + numbersPath})
		}, "is lost"},
		{"a number left out in another area", ops, func(tree []entry) []entry {
			return append(tree, entry{Path: "/area1"}, entry{Path: "/area1" + numbersPath}, entry{Path: "/area1" + numbersPath + "/n-0000000001"})
		}, "follows 0 others"},
		{"half a payment", ops, func(tree []entry) []entry {
			tree[6].Data = "0"
			return tree
		}, "account 1 of /area0 holds 0"},
		{"a payment made twice", ops, func(tree []entry) []entry {
			tree[5].Stat.Version++
			return tree
		}, "account 0 of /area0 holds -1 after 2 sets"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tree := ledgerTree()
			if c.edit != nil {
				tree = c.edit(tree)
			}
			if found := fmt.Sprint(findLosses(&past{Ops: c.ops}, tree)); !strings.Contains(found, c.want) {
				t.Errorf("found %s, want %q", found, c.want)
			}
		})
	}
}
