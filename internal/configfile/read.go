package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
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
	if err := d.Decode(config); errors.Is(err, io.EOF) {
		return errors.New("it is empty")
	} else if err != nil {
		return inFileWords(err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one document")
	}
	return fractions(text)
}

// fractions returns an error for each number that has a fraction. No setting can have one, and the
// YAML library cuts it off: 1.5 shards would be 1.
func fractions(text []byte) error {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return err
	}
	var problems []error
	var look func(n *yaml.Node)
	look = func(n *yaml.Node) {
		var f float64
		if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!float" && n.Decode(&f) == nil && f != math.Trunc(f) {
			problems = append(problems, fmt.Errorf("line %d: want a whole number, not `%s`; if it is text, quote it", n.Line, n.Value))
		}
		for _, child := range n.Content {
			look(child)
		}
	}
	look(&root)
	return errors.Join(problems...)
}

// The errors of the YAML library.
var (
	unknownKey = regexp.MustCompile(`^line (\d+): field (.*) not found in type (\S+)$`)
	repeated   = regexp.MustCompile(`^line (\d+): mapping key (".*") already defined at line (\d+)$`)
	wrongValue = regexp.MustCompile("(?s)^line (\\d+): cannot unmarshal !\\S+( `.*`)? into (\\S+)$")
)

// inFileWords translates an error of the YAML library.
func inFileWords(err error) error {
	var list *yaml.TypeError
	if !errors.As(err, &list) {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var problems []error
	for _, text := range list.Errors {
		problems = append(problems, errors.New(translated(text)))
	}
	return errors.Join(problems...)
}

func translated(text string) string {
	if m := unknownKey.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("line %s: there is no key %q%s", m[1], m[2], sections[m[3]])
	}
	if m := repeated.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("line %s: key %s is already on line %s", m[1], m[2], m[3])
	}
	if m := wrongValue.FindStringSubmatch(text); m != nil {
		want, not := values[m[3]], m[2]
		if want == "" {
			want = "keys with their values, such as dir: data" // for a struct
		}
		if not != "" {
			not = ", not" + not
		}
		return fmt.Sprintf("line %s: want %s%s", m[1], want, not)
	}
	return text
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
