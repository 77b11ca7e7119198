package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// A Type says how long an instance stays registered. The names are Curator's.
type Type string

// The types of Curator. Register is for Dynamic instances. Static and Permanent ones are persistent
// znodes: write Encode's data to Instance.Path with embed.Session.Put.
const (
	Dynamic           Type = "DYNAMIC"
	DynamicSequential Type = "DYNAMIC_SEQUENTIAL"
	Static            Type = "STATIC"
	Permanent         Type = "PERMANENT"
)

// An Instance is one instance of a service.
type Instance struct {
	Name    string // of the service
	ID      string // of the instance: at most one of the service has it
	Address string // empty: null, or an empty string when it was read
	Port    int    // zero: null
	SSLPort int    // zero: null
	// Payload is the caller's own JSON, without the class. Nil is null. An array has its Java class
	// in it, as Curator writes it: ["java.util.ArrayList",[1,2]]. Beside another array, Curator's
	// clients fail to read any instance of the service.
	Payload json.RawMessage
	// Class is the Java class of a Payload that is an object. Java clients that expect a class of
	// their own need it. Without it they see a map.
	Class      string
	Registered time.Time // in whole milliseconds; zero is 1970, as in Curator
	Type       Type      // empty: Dynamic
	URI        URISpec   // without parts: null
	// Disabled says that Service.Pick passes the instance over, as Curator's providers do.
	Disabled bool
}

// Path returns the path of the instance's znode.
func (in *Instance) Path(base string) string {
	return strings.TrimSuffix(base, "/") + "/" + in.Name + "/" + in.ID
}

// wire is the JSON of Curator's ServiceInstance, in the order of its fields.
type wire struct {
	Name       string          `json:"name"`
	ID         string          `json:"id"`
	Address    *string         `json:"address"`
	Port       *int            `json:"port"`
	SSLPort    *int            `json:"sslPort"`
	Payload    json.RawMessage `json:"payload"`
	Registered int64           `json:"registrationTimeUTC"`
	Type       Type            `json:"serviceType"`
	URI        *URISpec        `json:"uriSpec"`
	Enabled    *bool           `json:"enabled,omitempty"`
}

// class is the member of a payload that has the name of its Java class.
const class = "@class"

// Encode returns the instance as Curator writes it. "enabled" is written only for a Disabled
// instance: without it the instance is enabled, and clients older than "enabled" refuse it. Control
// characters and those beyond ASCII may be escaped in another way. Errors: embed.ErrInvalidArgument
// for a Payload that is no JSON, that has a Class and is no object, or that is an array without its
// class.
func Encode(in Instance) ([]byte, error) {
	w := wire{Name: in.Name, ID: in.ID, Type: in.Type, Payload: json.RawMessage("null")}
	if in.Address != "" {
		w.Address = &in.Address
	}
	if in.Port != 0 {
		w.Port = &in.Port
	}
	if in.SSLPort != 0 {
		w.SSLPort = &in.SSLPort
	}
	if !in.Registered.IsZero() {
		w.Registered = in.Registered.UnixMilli()
	}
	if in.Type == "" {
		w.Type = Dynamic
	}
	if len(in.URI.Parts) > 0 {
		w.URI = &in.URI
	}
	if in.Disabled {
		w.Enabled = new(bool)
	}
	if in.Payload != nil || in.Class != "" {
		var err error
		if w.Payload, err = withClass(in.Payload, in.Class); err != nil {
			return nil, fmt.Errorf("%w: Instance.Payload: %w", embed.ErrInvalidArgument, err)
		}
	}
	return marshal(w)
}

// marshal is json.Marshal, but writes <, > and & as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

var (
	// errNoObject refuses a payload that cannot have its class.
	errNoObject = errors.New("it has a class and is not an object")
	// errArray refuses a payload that Curator's clients cannot read.
	errArray = errors.New(`an array must be ["a Java class", value]`)
)

// withClass returns a payload in its shortest form, with the class as its first member.
func withClass(payload json.RawMessage, name string) (json.RawMessage, error) {
	var short bytes.Buffer
	if err := json.Compact(&short, payload); err != nil {
		return nil, err
	}
	if name == "" && short.Bytes()[0] == '[' && !arrayWithClass(short.Bytes()) {
		return nil, errArray
	}
	if name == "" {
		return short.Bytes(), nil
	}
	if short.Bytes()[0] != '{' {
		return nil, errNoObject
	}
	_, rest, err := withoutClass(short.Bytes())
	if err != nil {
		return nil, err
	}
	quoted, err := marshal(name)
	if err != nil {
		return nil, err
	}
	members := bytes.TrimPrefix(rest, []byte("{"))
	comma := ","
	if string(members) == "}" {
		comma = ""
	}
	return fmt.Appendf(nil, `{%q:%s%s%s`, class, quoted, comma, members), nil
}

// arrayWithClass reports whether an array is a class and a value of it.
func arrayWithClass(array json.RawMessage) bool {
	var items []json.RawMessage
	var name string
	return json.Unmarshal(array, &items) == nil && len(items) == 2 &&
		json.Unmarshal(items[0], &name) == nil && name != ""
}

// withoutClass takes the class out of an object. Everything else stays as it is, in its order.
func withoutClass(object json.RawMessage) (name string, rest json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return "", nil, err
	}
	rest = append(rest, '{')
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", nil, err
		}
		var member json.RawMessage
		if err := d.Decode(&member); err != nil {
			return "", nil, err
		}
		if key == class && json.Unmarshal(member, &name) == nil {
			continue
		}
		quoted, err := marshal(key)
		if err != nil {
			return "", nil, err
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(append(rest, quoted...), ':'), member...)
	}
	return name, append(rest, '}'), nil
}

// Decode reads what Curator or Encode has written. The members may be in any order, and unknown
// ones are ignored. Without "enabled" the instance is enabled. An instance without a name or an id
// is refused, and so is empty data.
func Decode(data []byte) (Instance, error) {
	w := wire{Type: Dynamic}
	if err := json.Unmarshal(data, &w); err != nil {
		return Instance{}, fmt.Errorf("service instance: %w", err)
	}
	if w.Name == "" || w.ID == "" {
		return Instance{}, fmt.Errorf("service instance: it has no name or no id")
	}
	in := Instance{Name: w.Name, ID: w.ID, Type: w.Type, Disabled: w.Enabled != nil && !*w.Enabled}
	if w.Address != nil {
		in.Address = *w.Address
	}
	if w.Port != nil {
		in.Port = *w.Port
	}
	if w.SSLPort != nil {
		in.SSLPort = *w.SSLPort
	}
	if w.Registered != 0 {
		in.Registered = time.UnixMilli(w.Registered)
	}
	if w.URI != nil {
		in.URI = *w.URI
	}
	payload := bytes.TrimSpace(w.Payload)
	switch {
	case len(payload) == 0 || string(payload) == "null":
	case payload[0] == '{':
		var err error
		if in.Class, in.Payload, err = withoutClass(payload); err != nil {
			return Instance{}, fmt.Errorf("service instance: payload: %w", err)
		}
	default:
		in.Payload = bytes.Clone(payload)
	}
	return in, nil
}
