package configfile

import (
	"slices"
	"strings"
	"testing"
	"time"
)

type config struct {
	Name   string        `yaml:"name"`
	Shards int           `yaml:"shards"`
	Tick   time.Duration `yaml:"tick"`
	On     bool          `yaml:"on"`
	Words  []string      `yaml:"words"`
	Hidden string        `yaml:"-"`
	Part   *part         `yaml:"part"`
}

type part struct {
	Size int64 `yaml:"size"`
}

func TestRead(t *testing.T) {
	var c config
	err := Read(strings.NewReader("name: a\nshards: 3\ntick: 50ms\non: true\nwords: [x, y]\npart: {size: 1e9}\n"), &c)
	if err != nil || c.Name != "a" || c.Shards != 3 || c.Tick != 50*time.Millisecond || !c.On || len(c.Words) != 2 || c.Part.Size != 1_000_000_000 {
		t.Errorf("got %+v, %v", c, err)
	}
}

// Text may look like a number.
func TestRead_TextThatLooksLikeANumber(t *testing.T) {
	var c config
	err := Read(strings.NewReader("name: 1.50\nwords: [2, -3.5, .inf]\n"), &c)
	if err != nil || c.Name != "1.50" || !slices.Equal(c.Words, []string{"2", "-3.5", ".inf"}) {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestRead_Refuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "it is empty",
		"# nothing\n":                         "it is empty",
		"name: a\n---\nname: b\n":             "it has more than one document",
		"name: [a\n":                          "line 1: did not find expected ',' or ']'",
		"- name: a\n":                         "line 1: want keys with their values, such as dir: data",
		"\nnames: a\n":                        `line 2: there is no key "names"`,
		"Name: a\n":                           `line 1: there is no key "Name"`,
		"Hidden: a\n-: a\n":                   "line 1: there is no key \"Hidden\"\nline 2: there is no key \"-\"",
		"name: a\non: true\nname: b\n":        `line 3: key "name" is already on line 1`,
		"name: {secret: hunter2}\n":           "line 1: want text",
		"shards: three\nwords: x\n":           "line 1: want a whole number, not `three`\nline 2: want a list such as [srvr, ruok], not `x`",
		"shards: 1.5\npart:\n  size: .5\n":    "line 1: want a whole number, not `1.5`\nline 3: want a whole number, not `.5`",
		"shards: 1.5\nshard: 1\ntick: 2.5\n":  "line 1: want a whole number, not `1.5`\nline 2: there is no key \"shard\"\nline 3: want a duration such as 50ms, not `2.5`",
		"shards: -.inf\npart: {size: -1.0}\n": "line 1: want a whole number, not `-.inf`\nline 2: want a whole number, not `-1.0`",
		"shards: !!float \"1.5\"\n":           "line 1: want a whole number, not `1.5`",
		"shards: .nan\nname: &f 1.5\npart: {size: *f}\n":           "line 1: want a whole number, not `.nan`\nline 2: want a whole number, not `1.5`",
		"tick: 50\non: maybe\n":                                    "line 1: want a duration such as 50ms, not `50`\nline 2: want true or false, not `maybe`",
		"name: a\npart:\n  # size: 1\n":                            `line 2: key "part" has no value: give it one, or leave it out`,
		"part:\n  size: ~\nwords: null\n":                          "line 2: key \"size\" has no value: give it one, or leave it out\nline 3: key \"words\" has no value: give it one, or leave it out",
		"part: 1\n":                                                "line 1: want keys with their values, such as dir: data, not `1`",
		"name: &x a\nshards: *x\n":                                 "line 1: want a whole number, not `a`",
		"name: a-text-that-is-long\nshards: a-text-that-is-long\n": "line 2: want a whole number, not `a-text-...`",
	} {
		if err := Read(strings.NewReader(text), new(config)); err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}
