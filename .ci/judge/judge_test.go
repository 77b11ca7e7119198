package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
		"does not compile":          {"package x\nimport \"testing\"\nfunc Test(t *testing.T) { x }\n", "real", 1, false, "undefined: x"},
		"ends outside its tests":    {"package x\nimport (\"os\"; \"testing\")\nfunc TestMain(*testing.M) { os.Exit(3) }\n", "real", 1, false, "exit status 3"},
		"fails beside a flaky test": {first + "func TestBad(t *testing.T) { t.Fatal(1) }\n", "real", 1, true, "no mark"},
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
			if c.source == endless {
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
			if got := strings.Contains(string(noted), "FLAKY TestFirst/of_a_part of real\n"); got != c.flaky {
				t.Errorf("flaky: %v, want %v: %s", got, c.flaky, noted)
			}
			if c.flaky && (!strings.Contains(string(noted), "no mark") || !strings.Contains(string(noted), "a mark")) {
				t.Errorf("not both outputs: %s", noted)
			}
		})
	}
}
