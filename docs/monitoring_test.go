package docs

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var (
	metricName = regexp.MustCompile(`vivarium_\w+(\{[^}]*\})?`)
	labelName  = regexp.MustCompile(`(\w+)\s*[!=]~?"`)
	// suffixes are what Prometheus adds to the name of a histogram.
	suffixes = []string{"_bucket", "_sum", "_count"}
)

// metricLabels returns the labels of each metric in the golden list.
func metricLabels(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "embed", "testdata", "metrics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	labels := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		names := []string{words[0]}
		if words[1] == "histogram" {
			names = nil
			for _, suffix := range suffixes {
				names = append(names, words[0]+suffix)
			}
		}
		for _, name := range names {
			labels[name] = append(labels[name], "instance", "job")
			for _, word := range words[2:] {
				label, _, _ := strings.Cut(word, "=")
				labels[name] = append(labels[name], label)
			}
		}
	}
	return labels
}

// checkExpression checks the metrics and the labels that an expression of Prometheus names.
func checkExpression(t *testing.T, where, expression string, known map[string][]string) {
	t.Helper()
	for _, found := range metricName.FindAllString(expression, -1) {
		name, selector, _ := strings.Cut(found, "{")
		labels, ok := known[name]
		if !ok {
			t.Errorf("%s: there is no metric %s: use one of embed/testdata/metrics.txt", where, name)
			continue
		}
		for _, m := range labelName.FindAllStringSubmatch(selector, -1) {
			if !slices.Contains(labels, m[1]) {
				t.Errorf("%s: %s has no label %s: its labels are %v, see embed/testdata/metrics.txt", where, name, m[1], labels)
			}
		}
	}
}

func exampleFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "examples", "monitoring", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// An alert is one of the rules in alerts.yaml.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	d := yaml.NewDecoder(strings.NewReader(string(exampleFile(t, "alerts.yaml"))))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 15 {
		t.Fatalf("examples/monitoring/alerts.yaml: want one group with 15 rules or more: %+v", file)
	}
	return file.Groups[0].Rules
}

// The alerts name metrics that exist, headings that exist, and are explained in metrics.md.
func TestAlerts(t *testing.T) {
	known := metricLabels(t)
	explained, err := os.ReadFile("metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	for _, p := range pages(t) {
		for _, line := range p.prose {
			if text, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
				headings = append(headings, path.Base(p.name)+"#"+anchor(text))
			}
		}
	}
	seen := make(map[string]bool)
	for _, a := range alerts(t) {
		checkExpression(t, "examples/monitoring/alerts.yaml: "+a.Alert, a.Expr, known)
		if seen[a.Alert] || a.Expr == "" || !slices.Contains([]string{"info", "warning", "critical"}, a.Labels["severity"]) || a.Annotations["summary"] == "" {
			t.Errorf("examples/monitoring/alerts.yaml: %s is there twice, or lacks an expr, a severity (info, warning or critical) or a summary: %+v", a.Alert, a)
		}
		seen[a.Alert] = true
		if at := path.Base(a.Annotations["runbook_url"]); !slices.Contains(headings, at) {
			t.Errorf("examples/monitoring/alerts.yaml: %s: its runbook_url ends in %s, which is no page of docs with that heading", a.Alert, at)
		}
		if !strings.Contains(string(explained), "`"+a.Alert+"`") {
			t.Errorf("docs/metrics.md does not explain the alert %s of examples/monitoring/alerts.yaml: name it between backquotes", a.Alert)
		}
	}
}

// The dashboard names metrics that exist.
func TestDashboard(t *testing.T) {
	known := metricLabels(t)
	var board struct {
		Panels []struct {
			ID          int
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	text := exampleFile(t, "dashboard.json")
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	ids, shown := make(map[int]bool), 0
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("examples/monitoring/dashboard.json: panel %d, %q, has the id of another, or no title, or no target (a row has none): %+v", p.ID, p.Title, p)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			checkExpression(t, "examples/monitoring/dashboard.json: "+p.Title, target.Expr, known)
			shown++
		}
	}
	if shown < 30 {
		t.Errorf("examples/monitoring/dashboard.json has %d expressions, want 30 or more", shown)
	}
}

// metrics.md has all metrics, and no others.
func TestMetricsAreDocumented(t *testing.T) {
	known := metricLabels(t)
	text, err := os.ReadFile("metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "| `vivarium_"); ok {
			name, _, _ = strings.Cut(name, "`")
			rows["vivarium_"+name] = true
		}
	}
	for name := range known {
		for _, suffix := range suffixes {
			if base := strings.TrimSuffix(name, suffix); known[base+"_sum"] != nil {
				name = base
			}
		}
		if !rows[name] {
			t.Errorf("docs/metrics.md lacks %s: add the row | `%[1]s` | kind | labels | what it says |", name)
		}
	}
	for name := range rows {
		if known[name] == nil && known[name+"_count"] == nil {
			t.Errorf("docs/metrics.md has %s, which embed/testdata/metrics.txt has not: take its row out", name)
		}
	}
}
