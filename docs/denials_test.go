package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A denial is where a page says that something is not there. Whoever adds that thing does not know
// who has denied it.
type denial struct {
	page, words string
	unless      string // a pattern of exported names that would make it false; empty if no name would
}

// denying finds sentences that deny something. Without a quorum is a state of affairs, no denial.
var denying = regexp.MustCompile(`(?i)\bthere (?:is|are) no\b(?: quorum)?|\bnot yet\b|\bcannot\b[^.|]{0,40}\byet\b|\bnot possible\b|\bnobody has here\b|\bno way\b|\bno (?:Kerberos|local sessions)\b|\bnothing like\b`)

var denials = []denial{
	{"README.md", "There is no release yet", ""},
	{"docs/admin.md", "there are no cookies and no CORS headers", "(?i)cookie|cors"},
	{"docs/admin.md", "there are no ephemerals, because the session is not yours", ""},
	{"docs/architecture.md", "there is no third state for a reader", ""},
	{"docs/compatibility.md", "there is no way back", "func.*LowerLevel"},
	{"docs/kubernetes.md", "**There is no liveness probe**", ""},
	{"docs/limits.md", "find no Kerberos", "(?i)kerberos|gssapi"},
	{"docs/migrating.md", "there is no connection to lose", ""},
	{"docs/migrating.md", "not possible: there is no history", `WatchOptions struct \{ (Since|From)`},
	{"docs/migrating.md", "**There is no history.**", `WatchOptions struct \{ (Since|From)`},
	{"docs/migrating.md", "There is no DNS", `(?i)\bdns`},
	{"docs/recipes-of-others.md", "there is no round trip to save", ""},
	{"docs/recipes-of-others.md", "What nobody has here", "(?i)limiter|intent|crossshard.*multi"},
	{"docs/shards.md", "there is no common order", ""},
	{"docs/upgrades.md", "There is no way down", "func.*LowerLevel"},
	{"docs/zookeeper-clients.md", "No Kerberos, [no local sessions]", "(?i)kerberos|gssapi|localsession"},
	{"docs/zookeeper-clients.md", "There is nothing like it here, on purpose", "(?i)localsession"},
	{"docs/zookeeper-clients.md", "There is no bound unless you set one", ""},
	{"docs/zookeeper-clients.md", "There is no Kerberos (GSSAPI)", "(?i)kerberos|gssapi"},
}

// What a page denies is in the list of denials, and no exported name contradicts it.
func TestDenialsHold(t *testing.T) {
	api, err := os.ReadFile("../embed/testdata/api.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range denials {
		if d.unless == "" {
			continue
		}
		if name := regexp.MustCompile(".*(" + d.unless + ").*").FindString(string(api)); name != "" {
			t.Errorf("%s says %q, and there is %s: correct the page", d.page, d.words, name)
		}
	}
	known := make(map[string]bool)
	for _, p := range pages(t) {
		var text strings.Builder
		for _, line := range p.prose {
			text.WriteString(line + " ")
		}
		for _, at := range denying.FindAllStringIndex(text.String(), -1) {
			if found := text.String()[at[0]:at[1]]; !strings.HasSuffix(found, "quorum") && !listed(p.name, text.String(), at, known) {
				t.Errorf("%s denies something: %q. Is it true? Then add it to denials, with the names that would make it false", p.name, text.String()[at[0]:min(at[1]+40, text.Len())])
			}
		}
	}
	for _, d := range denials {
		if !known[d.page+d.words] {
			t.Errorf("%s does not say %q: take it out of denials", d.page, d.words)
		}
	}
}

// listed reports whether a denial of the page includes what stands at at.
func listed(page, text string, at []int, known map[string]bool) (found bool) {
	for _, d := range denials {
		i := strings.Index(text, d.words)
		if d.page == page && i >= 0 && at[0] < i+len(d.words) && i < at[1] {
			known[d.page+d.words], found = true, true
		}
	}
	return found
}
