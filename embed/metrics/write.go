package metrics

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// ContentType is the media type of what Write writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Write writes the samples of all sources in Prometheus's text format, version 0.0.4. The samples
// of a name stand together, sorted by their labels, and the names are in order.
//
// Two samples with the same name and labels are an error: [With] tells two nodes of a process
// apart. So are a name or a label that Prometheus would refuse, and a name with two kinds. After an
// error nothing was written, unless it is an error of w.
func Write(w io.Writer, sources ...Source) error {
	list := collect(sources)
	if err := check(list); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	p := page{Writer: bufio.NewWriter(w)}
	for i := range list {
		s := &list[i]
		if i == 0 || s.Name != list[i-1].Name {
			p.head(s)
		}
		p.sample(s)
	}
	return p.Flush()
}

// Handler answers each request with what Write writes.
func Handler(sources ...Source) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var b strings.Builder
		if err := Write(&b, sources...); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", ContentType)
		_, _ = io.WriteString(w, b.String()) // who asked may be gone
	})
}

// collect returns the samples of all sources in the order of the page.
func collect(sources []Source) (list []Sample) {
	for _, source := range sources {
		list = slices.AppendSeq(list, source.Samples())
	}
	for i := range list {
		if labels := list[i].Labels; !slices.IsSortedFunc(labels, compareLabels) {
			list[i].Labels = slices.SortedFunc(slices.Values(labels), compareLabels)
		}
	}
	slices.SortStableFunc(list, func(a, b Sample) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.CompareFunc(a.Labels, b.Labels, compareLabels))
	})
	return list
}

func compareLabels(a, b Label) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value))
}

// check returns why a page with these samples would be refused, or nil.
func check(list []Sample) error {
	for i := range list {
		s := &list[i]
		if err := s.check(); err != nil {
			return err
		}
		if i == 0 || s.Name != list[i-1].Name {
			continue
		}
		if s.Kind != list[i-1].Kind {
			return fmt.Errorf("%s is a %v and a %v", s.Name, list[i-1].Kind, s.Kind)
		}
		if slices.Equal(s.Labels, list[i-1].Labels) {
			return fmt.Errorf("%s is there twice with the labels %v", s.Name, s.Labels)
		}
	}
	return nil
}

func (s *Sample) check() error {
	if !isName(s.Name) {
		return fmt.Errorf("%q is no name of a metric", s.Name)
	}
	for i, l := range s.Labels {
		switch {
		case !isName(l.Name) || strings.HasPrefix(l.Name, "__") || l.Name == "le":
			return fmt.Errorf("%s: %q is no name of a label", s.Name, l.Name)
		case slices.ContainsFunc(s.Labels[:i], func(o Label) bool { return o.Name == l.Name }):
			return fmt.Errorf("%s has the label %s twice", s.Name, l.Name)
		}
	}
	h := s.Histogram
	switch {
	case s.Kind > Distribution:
		return fmt.Errorf("%s has the unknown kind %d", s.Name, s.Kind)
	case (s.Kind == Distribution) != (h != nil):
		return fmt.Errorf("%s is a %v: a histogram, and nothing else, has a Histogram", s.Name, s.Kind)
	case h != nil && (len(h.Counts) != len(h.Bounds)+1 || !isAscending(h.Bounds)):
		return fmt.Errorf("%s has a Histogram whose Bounds and Counts do not fit together", s.Name)
	}
	return nil
}

func isAscending(bounds []float64) bool {
	for i, b := range bounds {
		if math.IsNaN(b) || math.IsInf(b, 0) || i > 0 && b <= bounds[i-1] {
			return false
		}
	}
	return true
}

// isName reports whether a text may be the name of a metric or a label.
func isName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return s != ""
}

// A page writes lines. Its Flush returns the first error.
type page struct{ *bufio.Writer }

// add appends text. An error stays until Flush.
func (p page) add(text ...string) {
	for _, t := range text {
		_, _ = p.WriteString(t)
	}
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func (p page) head(s *Sample) {
	if s.Help != "" {
		p.add("# HELP ", s.Name, " ", helpEscapes.Replace(s.Help), "\n")
	}
	p.add("# TYPE ", s.Name, " ", s.Kind.String(), "\n")
}

func (p page) sample(s *Sample) {
	h := s.Histogram
	if h == nil {
		p.line(s.Name, s.Labels, "", number(s.Value))
		return
	}
	var n uint64
	for i, count := range h.Counts {
		n += count
		bound := "+Inf"
		if i < len(h.Bounds) {
			bound = number(h.Bounds[i])
		}
		p.line(s.Name+"_bucket", s.Labels, bound, strconv.FormatUint(n, 10))
	}
	p.line(s.Name+"_sum", s.Labels, "", number(h.Sum))
	p.line(s.Name+"_count", s.Labels, "", strconv.FormatUint(n, 10))
}

// line writes one line. bound is the label "le", if it is not empty.
func (p page) line(name string, labels []Label, bound, value string) {
	p.add(name)
	between := "{"
	for _, l := range labels {
		p.add(between, l.Name, `="`, valueEscapes.Replace(strings.ToValidUTF8(l.Value, "\uFFFD")), `"`)
		between = ","
	}
	if bound != "" {
		p.add(between, `le="`, bound, `"`)
		between = ","
	}
	if between == "," {
		p.add("}")
	}
	p.add(" ", value, "\n")
}

func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
