package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write orders.csv anew")

// generate returns orders.csv as it was made: 1,000 orders over 40 accounts, about a third of them
// negative.
func generate() string {
	r := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	b.WriteString("id,account,amount\n")
	for i := 1; i <= 1000; i++ {
		amount := cents(1 + r.Int64N(500_00))
		if r.IntN(3) == 0 {
			amount = -amount
		}
		fmt.Fprintf(&b, "order-%04d,A%02d,%v\n", i, 1+r.IntN(40), amount)
	}
	return b.String()
}

func TestOrders_Builtin(t *testing.T) {
	want := generate()
	if *update {
		if err := os.WriteFile("orders.csv", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if builtin != want {
		t.Fatal("orders.csv is not what generate makes; run go test -run Builtin -update")
	}
	orders, problems, err := readOrders(strings.NewReader(want))
	if err != nil || len(problems) != 0 || len(orders) != 1000 {
		t.Fatalf("%d orders, problems %v, err %v", len(orders), problems, err)
	}
	if n := len(balances(orders)); n != 40 {
		t.Fatalf("%d accounts", n)
	}
}

func TestOrders_Read(t *testing.T) {
	long := strings.Repeat("x", textMax+1)
	in := "\ufeffID, Account ,Amount\r\n" + // 1
		"a,acc,1\r\n" + // 2
		"\n" + // 3
		"b,acc,-2.5\n" + // 4
		"c,acc\n" + // 5
		"d,acc,1,2\n" + // 6
		"e,,1\n" + // 7
		",acc,1\n" + // 8
		"f,acc,1.234\n" + // 9
		"g,acc,one\n" + // 10
		"a,acc,7\n" + // 11
		`h,"acc" x,1` + "\n" + // 12
		`"i,j","a ""quoted"" one",+0.05` + "\n" + // 13
		`k,"open,1` + "\n" + // 14
		"l,acc,99999999999999999999\n" + // 15
		long + ",acc,1\n" + // 16
		"m,acc,-\n" + // 17
		"n,acc,.5\n" + // 18
		"o,acc,1e3\n" + // 19
		"q,M\xfcller,1\n" + // 20, Latin-1
		"r,Müller,1\n" + // 21
		"p,acc,-0.00" // 22, no newline at the end
	orders, problems, err := readOrders(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	want := []order{{"a", "acc", 100}, {"b", "acc", -250}, {"i,j", `a "quoted" one`, 5}, {"r", "Müller", 100}, {"p", "acc", 0}}
	if fmt.Sprint(orders) != fmt.Sprint(want) {
		t.Errorf("orders %v, want %v", orders, want)
	}
	var lines []int
	for _, p := range problems {
		lines = append(lines, p.line)
	}
	if got, want := fmt.Sprint(lines), "[5 6 7 8 9 10 11 12 14 15 16 17 18 19 20]"; got != want {
		t.Errorf("problems on lines %v, want %v", got, want)
	}
	if got, want := problems[6].text, `id "a" was on line 2 already`; got != want {
		t.Errorf("line 11: %s, want %s", got, want)
	}
}

func TestOrders_Unreadable(t *testing.T) {
	if _, _, err := readOrders(strings.NewReader("a,b,1\n" + strings.Repeat("x", lineMax+1))); err == nil || !strings.Contains(err.Error(), "line 2 ") {
		t.Errorf("a line without an end: %v", err)
	}
	dir := t.TempDir()
	for _, name := range []string{dir + "/missing.csv", dir} {
		if err := run(t.Context(), options{input: name}, t.Output()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOrders_None(t *testing.T) {
	for _, c := range []struct {
		text string
		ok   bool
	}{{"", true}, {"id,account,amount\n", true}, {"\x00\x01\n", false}} {
		name := t.TempDir() + "/orders.csv"
		if err := os.WriteFile(name, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), options{input: name}, t.Output()); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}

func TestCents(t *testing.T) {
	for s, want := range map[string]cents{"0": 0, "1": 100, "-1.5": -150, "+0.07": 7, "-0.07": -7, "007.10": 710, "100000000000": centsMax} {
		got, err := parseCents(s)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", s, got, err)
		}
	}
	for s, want := range map[string]cents{"-0.07": -7, "-1.50": -150, "12.00": 1200} {
		if got := want.String(); got != s {
			t.Errorf("%d prints as %s, want %s", want, got, s)
		}
	}
	for _, s := range []string{"", "-", ".", "1.", ".1", "1.234", "1,5", "0x1", "1 2", "--1", "100000000000.01", "١"} {
		if got, err := parseCents(s); err == nil {
			t.Errorf("%q was read as %v", s, got)
		}
	}
}
