package discovery

import (
	"encoding/json"
	"strconv"
	"strings"
)

// A URISpec is how the URI of an instance is made: texts and variables, one after the other.
type URISpec struct {
	Parts []URIPart `json:"parts"`
}

// A URIPart is a text, or the name of a variable.
type URIPart struct {
	Value    string `json:"value"`
	Variable bool   `json:"variable"`
}

// MarshalJSON writes no null for a spec without parts, which Java clients do not expect.
func (u URISpec) MarshalJSON() ([]byte, error) {
	parts := u.Parts
	if parts == nil {
		parts = []URIPart{}
	}
	return marshal(struct {
		Parts []URIPart `json:"parts"`
	}{parts})
}

var _ json.Marshaler = URISpec{}

// ParseURI reads a spec such as "{scheme}://{address}:{port}/api", in which names of variables are
// in braces. Spaces around a name do not count. Errors: embed.ErrInvalidArgument for braces that do
// not match.
func ParseURI(spec string) (u URISpec, err error) {
	inside := false
	for spec != "" {
		i := strings.IndexAny(spec, "{}")
		if i < 0 {
			i = len(spec)
		}
		if i > 0 {
			token := spec[:i]
			if inside {
				token = strings.TrimSpace(token)
			}
			u.Parts = append(u.Parts, URIPart{token, inside})
			spec = spec[i:]
			continue
		}
		if inside == (spec[0] == '{') {
			return URISpec{}, wrong("URI spec: unexpected %q", spec[:1])
		}
		inside, spec = !inside, spec[1:]
	}
	if inside {
		return URISpec{}, wrong("URI spec: the last %q is not closed", "{")
	}
	return u, nil
}

// Build returns the URI of an instance. The variables are
//
//	scheme                 https if the instance has an SSLPort, else http
//	name, id, address      of the instance
//	port, ssl-port         of the instance; empty if there is none
//	registration-time-utc  in milliseconds
//	service-type           in lower case
//	[ and ]                a brace
//
// and those of more, which come first. An unknown variable is empty.
func (u URISpec) Build(in Instance, more map[string]string) string {
	var b strings.Builder
	for _, p := range u.Parts {
		text, ok := more[p.Value]
		switch {
		case !p.Variable:
			text = p.Value
		case !ok:
			text = in.variable(p.Value)
		}
		b.WriteString(text)
	}
	return b.String()
}

// variable returns the value of a variable.
func (in *Instance) variable(name string) string {
	number := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	switch name {
	case "scheme":
		if in.SSLPort != 0 {
			return "https"
		}
		return "http"
	case "name":
		return in.Name
	case "id":
		return in.ID
	case "address":
		return in.Address
	case "port":
		return number(int64(in.Port))
	case "ssl-port":
		return number(int64(in.SSLPort))
	case "registration-time-utc":
		if in.Registered.IsZero() {
			return "0"
		}
		return strconv.FormatInt(in.Registered.UnixMilli(), 10)
	case "service-type":
		if in.Type == "" {
			return strings.ToLower(string(Dynamic))
		}
		return strings.ToLower(string(in.Type))
	case "[":
		return "{"
	case "]":
		return "}"
	}
	return ""
}
