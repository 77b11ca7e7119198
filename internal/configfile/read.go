package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Read reads one YAML document into a config, which is a pointer to a struct. The error has a line
// for each problem.
func Read(r io.Reader, config any) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var list *yaml.TypeError
	switch err := d.Decode(config); {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case err != nil && !errors.As(err, &list):
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one document")
	}
	problems := make(map[int][]error) // by line
	if list != nil {
		for _, text := range list.Errors {
			line, problem := translated(text)
			problems[line] = append(problems[line], problem)
		}
	}
	if err := findFractions(text, problems); err != nil {
		return err
	}
	var all []error
	for _, line := range slices.Sorted(maps.Keys(problems)) {
		for _, problem := range problems[line] {
			all = append(all, fmt.Errorf("line %d: %w", line, problem))
		}
	}
	return errors.Join(all...)
}

// findFractions adds a problem for each number that has a fraction, unless its line has a problem
// already. No setting can have a fraction, and the YAML library cuts it off: 1.5 shards would be 1.
func findFractions(text []byte, problems map[int][]error) error {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return err
	}
	var look func(n *yaml.Node)
	look = func(n *yaml.Node) {
		var f float64
		if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!float" && n.Decode(&f) == nil && f != math.Trunc(f) && problems[n.Line] == nil {
			problems[n.Line] = []error{fmt.Errorf("want a whole number, not `%s`; if it is text, quote it", n.Value)}
		}
		for _, child := range n.Content {
			look(child)
		}
	}
	look(&root)
	return nil
}

// The errors of the YAML library, after the line.
var (
	unknownKey = regexp.MustCompile(`^field (.*) not found in type (\S+)$`)
	repeated   = regexp.MustCompile(`^mapping key (".*") already defined at line (\d+)$`)
	wrongValue = regexp.MustCompile("(?s)^cannot unmarshal !\\S+( `.*`)? into (\\S+)$")
)

// translated writes an error of the YAML library, which begins with its line, in the words of a file.
func translated(text string) (line int, problem error) {
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	if m := unknownKey.FindStringSubmatch(text); m != nil {
		return line, fmt.Errorf("there is no key %q%s", m[1], sections[m[2]])
	}
	if m := repeated.FindStringSubmatch(text); m != nil {
		return line, fmt.Errorf("key %s is already on line %s", m[1], m[2])
	}
	if m := wrongValue.FindStringSubmatch(text); m != nil {
		want, not := values[m[2]], m[1]
		if want == "" {
			want = "keys with their values, such as dir: data" // for a struct
		}
		if not != "" {
			not = ", not" + not
		}
		return line, fmt.Errorf("want %s%s", want, not)
	}
	return line, errors.New(text)
}

// sections says where in a file the keys of a struct are. The keys of any other struct are at the
// top.
var sections = map[string]string{
	"embed.TLS":      " in tls",
	"gateway.Config": " in gateway",
	"gateway.TLS":    " in gateway.tls",
}

// values says what the value of a type looks like.
var values = map[string]string{
	"bool":                            "true or false",
	"int":                             "a number",
	"int64":                           "a number",
	"string":                          "text",
	"[]string":                        "a list such as [srvr, ruok]",
	"time.Duration":                   "a duration such as 50ms",
	"replication.MemberID":            "an id such as 1",
	"map[replication.MemberID]string": `members such as {1: "10.0.0.1:7400"}`,
}
