package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// twice begins a package whose tests know whether they run for the second time.
const twice = `package x
import ("fmt"; "os"; "testing")
var again = func() bool {
	_, err := os.Stat("mark")
	os.WriteFile("mark", nil, 0o644)
	return err == nil
}()
var _ = fmt.Print
`

// flaky is a test that fails the first time.
const flaky = twice + `
func TestFirst(t *testing.T) {
	if !again { t.Fatal("no mark") }
	t.Log("a mark")
}
`

// first is a test that fails the first time, by a mark in its folder.
const first = `package x
import ("os"; "testing")
func TestFirst(t *testing.T) {
	t.Run("of a part", func(t *testing.T) {
		if _, err := os.Stat("mark"); err != nil {
			os.WriteFile("mark", nil, 0o644)
			t.Fatal("no mark")
		}
		t.Log("a mark")
	})
}
func TestOther(t *testing.T) {}
`

// endless is a test that prints a line and never ends.
const endless = "package x\nimport \"testing\"\nfunc Test(t *testing.T) { t.Log(\"here\"); select {} }\n"

// endlessBeside is a test that never ends beside one that passes and speaks last.
const endlessBeside = `package x
import "testing"
var began = make(chan bool)
func TestOne(t *testing.T) { t.Parallel(); close(began); select {} }
func TestTwo(t *testing.T) { t.Parallel(); <-began; t.Log("here") }
`

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		real   string
		code   int
		flaky  bool
		says   string
	}{
		"passes":                    {"package x\nimport \"testing\"\nfunc Test(t *testing.T) {}\n", "real", 0, false, "ok "},
		"passes when it is alone":   {first, "real", 0, true, "no mark"},
		"is no test of processes":   {first, "other", 1, false, "no mark"},
		"fails":                     {"package x\nimport \"testing\"\nfunc Test(t *testing.T) { t.Fatal(1) }\n", "real", 1, false, "x_test.go:3: 1"},
		"panics":                    {strings.ReplaceAll(first, "t.Fatal(", "panic("), "real", 1, false, "panic: no mark"},
		"runs out of time":          {endless, "real", 1, false, "here"},
		"runs out of time beside":   {endlessBeside, "real", 1, false, "real.TestOne("},
		"does not compile":          {"package x\nimport \"testing\"\nfunc Test(t *testing.T) { x }\n", "real", 1, false, "undefined: x"},
		"ends outside its tests":    {"package x\nimport (\"os\"; \"testing\")\nfunc TestMain(*testing.M) { os.Exit(3) }\n", "real", 1, false, "exit status 3"},
		"fails beside a flaky test": {first + "func TestBad(t *testing.T) { t.Fatal(1) }\n", "real", 1, true, "no mark"},

		// The second try is of the whole test, and of no other.
		"fails under a new name each time": {twice + `func Test(t *testing.T) { t.Run(fmt.Sprint(os.Getpid()), func(t *testing.T) { t.Fatal("bad") }) }`, "real", 1, false, "bad"},
		"fails after another part": {twice + `func Test(t *testing.T) {
			n := 0
			t.Run("one", func(t *testing.T) { n++ })
			t.Run("two", func(t *testing.T) { if n == 1 { t.Fatal("after one") } })
		}`, "real", 1, false, "after one"},
		"has three flaky parts": {twice + `func TestFirst(t *testing.T) {
			for i := range 3 {
				t.Run(fmt.Sprint(i), func(t *testing.T) { t.Log("a mark"); if !again { t.Fatal("no mark") } })
			}
		}`, "real", 0, true, "no mark"},
		"is flaky beside one that fails later": {flaky + `func TestLater(t *testing.T) { if again { t.Fatal("later") } }`, "real", 0, true, "no mark"},
		"prints what looks like a note": {twice + `func TestFirst(t *testing.T) {
			t.Log("a mark")
			if !again { fmt.Print("\nFLAKY x of x\n"); t.Fatal("no mark") }
		}`, "real", 0, true, "no mark"},

		// A second try that skips the test is none.
		"skips when it is alone":        {twice + `func TestFirst(t *testing.T) { if again { t.Skip() }; t.Fatal("no mark") }`, "real", 1, false, "no mark"},
		"skips a part when it is alone": {twice + `func TestFirst(t *testing.T) { t.Run("a", func(t *testing.T) { if again { t.Skip() }; t.Fatal("no mark") }) }`, "real", 1, false, "no mark"},
		"runs no test when it is alone": {flaky + `func TestMain(m *testing.M) { if again { os.Exit(0) }; os.Exit(m.Run()) }`, "real", 1, false, "no mark"},

		"has no such part when it is alone": {twice + `func TestFirst(t *testing.T) { if !again { t.Run("a", func(t *testing.T) { t.Fatal("no mark") }) } }`, "real", 1, false, "no mark"},

		// The package fails for another reason too.
		"ends with 3 beside a flaky test":    {flaky + `func TestMain(m *testing.M) { if m.Run() != 0 { os.Exit(3) } }`, "real", 1, false, "exit status 3"},
		"ends with 1 beside a flaky test":    {flaky + `func TestMain(m *testing.M) { m.Run(); os.Exit(1) }`, "real", 1, false, "no mark"},
		"ends before it says that it failed": {flaky + `func TestZ(t *testing.T) { os.Stdout = nil }`, "real", 1, false, "no mark"},
		"says more beside a flaky test":      {flaky + `func TestMain(m *testing.M) { code := m.Run(); if code != 0 { fmt.Println("*** Test I/O incomplete") }; os.Exit(code) }`, "real", 1, false, "I/O incomplete"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"go.mod": "module real\ngo 1.26\n", "x_test.go": c.source} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			var out bytes.Buffer
			limits := []string{"10m"}
			if c.source == endless || c.source == endlessBeside {
				// On a busy machine the time may be over before the test prints its line.
				limits = []string{"1s", "5s", "20s", "80s"}
			}
			var code int
			var err error
			for _, limit := range limits {
				out.Reset()
				code, err = judge(&out, c.real, "flaky", []string{"-timeout", limit, "./..."})
				if strings.Contains(out.String(), c.says) {
					break
				}
			}
			if err != nil || code != c.code {
				t.Errorf("code %d, %v, want %d:\n%s", code, err, c.code, &out)
			}
			if !strings.Contains(out.String(), c.says) {
				t.Errorf("it does not say %q:\n%s", c.says, &out)
			}
			noted, _ := os.ReadFile("flaky")
			if got := strings.HasPrefix(string(noted), "FLAKY TestFirst of real\n"); got != c.flaky || strings.Count(string(noted), "\nFLAKY ") > 0 {
				t.Errorf("flaky: %v, want %v: %s", got, c.flaky, noted)
			}
			if c.flaky && (!strings.Contains(string(noted), "no mark") || !strings.Contains(string(noted), "a mark")) {
				t.Errorf("not both outputs: %s", noted)
			}
		})
	}
}

// The second try is of one test, whatever the caller's -run matches.
func TestJudge_TheCallersRun(t *testing.T) {
	dir := t.TempDir()
	source := flaky + `func TestLater(t *testing.T) { if again { t.Fatal("later") } }`
	for file, text := range map[string]string{"go.mod": "module real\ngo 1.26\n", "x_test.go": source} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, args := range [][]string{{"-run", "Test", "./..."}, {"./...", "-run", "Test"}} {
		if err := os.RemoveAll("mark"); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if code, err := judge(&out, "real", "", args); err != nil || code != 0 {
			t.Errorf("%q: code %d, %v:\n%s", args, code, err, &out)
		}
	}
}

func TestJudge_OfNoTest(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{"go.mod": "module real\ngo 1.26\n", "x_test.go": "package x\nimport \"testing\"\nfunc TestHere(t *testing.T) {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for name, want := range map[string]int{"Here": 0, "Gone": 1} {
		var out bytes.Buffer
		if code, err := judge(&out, "real", "flaky", []string{"-run", name, "./..."}); err != nil || code != want {
			t.Errorf("%s: code %d, %v, want %d:\n%s", name, code, err, want, &out)
		}
	}
}
