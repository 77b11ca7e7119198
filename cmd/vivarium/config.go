package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
)

// config is what a file for serve says: the keys of embed.ReadConfig, and the gateway's.
type config struct {
	embed.Config `yaml:",inline"`
	Gateway      gateway.Config `yaml:"gateway"`
}

// readConfig reads a config and validates it. An id that is not zero takes the place of the file's. The error has a
// line for each problem.
func readConfig(name string, id embed.MemberID) (c config, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return c, err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	if err := d.Decode(&first); errors.Is(err, io.EOF) {
		return c, fmt.Errorf("%s: it is empty", name)
	} else if err != nil {
		if what, ok := strings.CutPrefix(err.Error(), "yaml: line "); ok {
			return c, fmt.Errorf("%s:%s", name, what)
		}
		return c, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("%s: it has more than one document", name)
	}
	r := reader{name: name}
	r.fill(reflect.ValueOf(&c).Elem(), first.Content[0], "")
	if id != 0 {
		c.ID = id
	}
	if r.problems == nil {
		r.invalid(c.Config, "", c.Config.Validate())
		r.invalid(c.Gateway, "gateway.", c.Gateway.Validate())
	}
	return c, errors.Join(r.problems...)
}

// A reader fills in a config and notes every problem in the words of the file: the errors of package yaml and of Validate speak of Go's
// types and fields.
type reader struct {
	name     string
	problems []error
}

func (r *reader) add(format string, args ...any) {
	r.problems = append(r.problems, errors.New(r.name+fmt.Sprintf(format, args...)))
}

// fill sets v to what a node says. key is where that stands, empty for the whole file.
func (r *reader) fill(v reflect.Value, n *yaml.Node, key string) {
	line := n.Line
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.ShortTag() == "!!null" {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case v.Kind() != reflect.Struct:
		fraction := v.CanInt() && n.ShortTag() == "!!float" // which would be cut off
		if !fraction && n.Decode(v.Addr().Interface()) == nil {
			return
		}
		not := ""
		if n.Kind == yaml.ScalarNode {
			not = fmt.Sprintf(", not %q", n.Value)
		}
		r.add(":%d: %s: want %s%s", line, key, wanted(v.Type()), not)
	case n.Kind != yaml.MappingNode && key == "":
		r.add(":%d: want keys with their values, such as dir: data", line)
	case n.Kind != yaml.MappingNode:
		r.add(":%d: %s: want keys with their values", line, key)
	default:
		r.fillFields(v, n, key)
	}
}

func (r *reader) fillFields(v reflect.Value, n *yaml.Node, key string) {
	if key != "" {
		key += "."
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, line := n.Content[i].Value, n.Content[i].Line
		field := fieldOf(v, name)
		before, twice := seen[name]
		switch {
		case !field.IsValid():
			r.add(":%d: %s%s: there is no such key", line, key, name)
		case twice:
			r.add(":%d: %s%s: it stands on line %d already", line, key, name, before)
		default:
			r.fill(field, n.Content[i+1], key+name)
		}
		seen[name] = line
	}
}

// fieldOf returns the field of a struct that has the key, the zero Value if there is none.
func fieldOf(v reflect.Value, key string) reflect.Value {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			if field := fieldOf(v.Field(i), key); field.IsValid() {
				return field
			}
		} else if key == keyOf(f) && key != "-" {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

func keyOf(f reflect.StructField) string { return f.Tag.Get("yaml") }

// wanted says what a value of a type looks like.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 50ms or 10s"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Slice:
		return "a list such as [srvr, ruok]"
	case t.Kind() == reflect.Map:
		return "the id of each member once, with its host:port"
	}
	return "a number"
}

// fieldNames are the words of a problem of a Config that may be names of its fields.
var fieldNames = regexp.MustCompile(`(^| )[A-Z]\w*(\.[A-Z]\w*)*`)

// invalid notes the problems that the Validate of a Config found, with the keys that its fields have in the file.
func (r *reader) invalid(c any, prefix string, err error) {
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		r.add(": %s", prefix+fieldNames.ReplaceAllStringFunc(line, func(names string) string {
			var keys []string
			space := names[:len(names)-len(strings.TrimPrefix(names, " "))]
			t := reflect.TypeOf(c)
			for name := range strings.SplitSeq(names[len(space):], ".") {
				if t.Kind() == reflect.Pointer {
					t = t.Elem()
				}
				f, ok := t.FieldByName(name)
				if !ok {
					return names
				}
				keys, t = append(keys, keyOf(f)), f.Type
			}
			return space + strings.Join(keys, ".")
		}))
	}
}
