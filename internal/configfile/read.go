package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
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
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return err
	}
	findEmpty(&root, problems)
	if err := findFractions(&root, config, problems); err != nil {
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

// findEmpty adds a problem for each key without a value. To the YAML library it is as good as no
// key: a backup whose keys are all comments would be none, and tls would be plain text.
func findEmpty(n *yaml.Node, problems map[int][]error) {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && child.ShortTag() == "!!null" {
			key := n.Content[i-1]
			problems[key.Line] = append(problems[key.Line], fmt.Errorf("key %q has no value: give it one, or leave it out", key.Value))
		}
		findEmpty(child, problems)
	}
}

// findFractions adds a problem for each fraction where a number is wanted, unless its line has a
// problem already. The YAML library cuts fractions off: 1.5 shards would be 1. Where text is
// wanted, a fraction is text.
func findFractions(root *yaml.Node, config any, problems map[int][]error) error {
	if !quoteFractions(root) {
		return nil
	}
	again := reflect.New(reflect.TypeOf(config).Elem()).Interface()
	var list *yaml.TypeError
	if err := root.Decode(again); !errors.As(err, &list) {
		return err
	}
	seen := slices.Collect(maps.Keys(problems))
	for _, text := range list.Errors {
		if line, problem := translated(text); !slices.Contains(seen, line) {
			problems[line] = append(problems[line], problem)
		}
	}
	return nil
}

// quoteFractions makes text of every number that is negative, infinite or has a fraction, and
// reports whether there is one.
func quoteFractions(n *yaml.Node) (found bool) {
	var f float64
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!float" && n.Decode(&f) == nil &&
		(math.Signbit(f) || math.IsInf(f, 0) || f != math.Trunc(f)) {
		n.Tag, found = "!!str", true
	}
	for _, child := range n.Content {
		found = quoteFractions(child) || found
	}
	return found
}

// The errors of the YAML library, after the line.
var (
	unknownKey = regexp.MustCompile(`^field (.*) not found in type (\S+)$`)
	repeated   = regexp.MustCompile(`^mapping key (".*") already defined at line (\d+)$`)
	wrongValue = regexp.MustCompile("(?s)^cannot unmarshal !\\S+( `.*`)? into (\\S+)$")
)

// translated writes an error of the YAML library, which begins with its line, in the words of a
// file.
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
	"int":                             "a whole number",
	"int64":                           "a whole number",
	"string":                          "text",
	"[]string":                        "a list such as [srvr, ruok]",
	"time.Duration":                   "a duration such as 50ms",
	"replication.MemberID":            "an id such as 1",
	"map[replication.MemberID]string": `members such as {1: "10.0.0.1:7400"}`,
}
