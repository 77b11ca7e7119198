package embed_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
)

func TestValidate_ReportsEveryProblemAtOnce(t *testing.T) {
	bad := embed.Config{
		ID: 9,
		Members: map[embed.MemberID]string{
			0: "10.0.0.1:7400", 1: "10.0.0.1:7400", 2: "10.0.0.2", 3: ":7400", 4: "10.0.0.4:nowhere",
		},
		Listen: "::1:7400", Shards: 65, TLS: &embed.TLS{CertFile: "/no/cert", KeyFile: "/no/key", CAFile: "/no/ca"},
		Tick: time.Microsecond, RequestTimeout: -time.Second, MinSessionTimeout: time.Second, MaxSessionTimeout: time.Millisecond,
		MaxDataSize: -1, MaxTreeSize: -1, ContainerCheckInterval: -time.Second, HoldLevel: 6,
	}
	want := []string{
		"Dir is empty", "ID is 9, which is none of the Members 0, 1, 2, 3, 4", "Members has the id 0", "Members[0] and Members[1] are both",
		`Members[2] is "10.0.0.2"`, `Members[3] is ":7400"`, `Members[4] is "10.0.0.4:nowhere"`, `Listen is "::1:7400"`, "Shards is 65",
		"TLS.CertFile", "TLS.CAFile", "Tick is 1µs", "RequestTimeout is -1s", "MinSessionTimeout is 1s", "MaxSessionTimeout is 1ms",
		"MaxDataSize is -1", "MaxTreeSize is -1", "ContainerCheckInterval is -1s", "HoldLevel is 6",
	}
	before := bad
	err := bad.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("nothing is said of %q", w)
		}
	}
	if len(lines) != len(want) {
		t.Errorf("%d problems, want %d:\n%v", len(lines), len(want), err)
	}
	if !reflect.DeepEqual(bad, before) {
		t.Error("the Config was changed")
	}
}

// A8.2: a session timeout shorter than an election would end the session at every crash of a
// leader, although its own member works.
func TestValidate_NoSessionIsShorterThanThreeElections(t *testing.T) {
	for _, tick := range []time.Duration{10 * time.Millisecond, embed.DefaultTick, time.Second} {
		elections := 3 * engine.LongestElection(tick)
		c := embed.Config{Dir: "x", Tick: tick, MinSessionTimeout: elections}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		c.MinSessionTimeout--
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "MinSessionTimeout") {
			t.Errorf("%v is accepted at a tick of %v: %v", c.MinSessionTimeout, tick, err)
		}
	}
	n := embedkit.Alone(t, t.TempDir(), inside.Seams{})
	s, err := n.NewSession(bounded(t), embed.SessionOptions{Timeout: time.Millisecond})
	must(t, err)
	if least := 3 * engine.LongestElection(10*time.Millisecond); s.Timeout() != least {
		t.Errorf("a session got a timeout of %v, want %v", s.Timeout(), least)
	}
}

// What members must not say, and what says nothing of a node that is alone. M54: DeadAfter is
// never so short that a member goes before its sessions do.
func TestValidate_Members(t *testing.T) {
	seeds, found := []string{"pods:7400"}, func(context.Context) (bool, error) { return true, nil }
	one := map[embed.MemberID]string{1: "pod-1:7400"}
	for want, c := range map[string]embed.Config{
		"Voters is 2: want 1, 3, 5, 7 or 9, because an even number survives no more failures": {Join: seeds, Advertise: "pod-1:7400", Voters: 2},
		"Voters is 11: want 1, 3, 5, 7 or 9":                                                  {Join: seeds, Advertise: "pod-1:7400", Voters: 11},
		"Found and Members are both set":                                                      {Join: seeds, Members: one, ID: 1, Found: found},
		"Advertise is empty: give the host:port":                                              {Join: seeds},
		`Advertise is "pod-1": want host:port`:                                                {Join: seeds, Advertise: "pod-1"},
		`Join[0] is "pods": want host:port`:                                                   {Join: []string{"pods"}, Advertise: "pod-1:7400"},
		"ID is 3 but Members is empty: the ensemble gives":                                    {Join: seeds, Advertise: "pod-1:7400", ID: 3},
		"DeadAfter is 1m0s: want 2m0s at least, twice MaxSessionTimeout":                      {Join: seeds, Advertise: "pod-1:7400", DeadAfter: time.Minute},
		"Name and Zone may have 256 bytes":                                                    {Join: seeds, Advertise: "pod-1:7400", Zone: strings.Repeat("z", 257)},
		"Zone is set but Members and Join are empty: a node alone opens no port":              {Zone: "east"},
		"Voters is set but Members and Join are empty":                                        {Voters: 3},
		"Advertise is set but Members and Join are empty":                                     {Advertise: "pod-1:7400"},
		`Advertise is ":7400"`:                                                                {Members: one, Advertise: ":7400"},
		"ID is 0 or left out: say which of the Members 1 this is":                             {Join: seeds, Members: one},
		"ID is 2, which is none of the Members 1":                                             {Join: seeds, Members: one, ID: 2, Advertise: "pod-2:7400"},
	} {
		c.Dir = "x"
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// With a default, every process that leaves ID out would be member 1, and the first to start would
// pass for it.
func TestValidate_MembersNeedAnID(t *testing.T) {
	const huge embed.MemberID = 1<<62 + 1
	from0 := map[embed.MemberID]string{0: "s-0.s:7400", 1: "s-1.s:7400", 2: "s-2.s:7400"}
	from1 := map[embed.MemberID]string{3: "s-2.s:7400", 1: "s-0.s:7400", 2: "s-1.s:7400"}
	for _, c := range []struct {
		id      embed.MemberID
		members map[embed.MemberID]string
		want    string
	}{
		{0, from1, "ID is 0 or left out: say which of the Members 1, 2, 3 this is, or give its own address in Advertise"},
		{4, from1, "ID is 4, which is none of the Members 1, 2, 3: leave it out for a node that is to join, and set Advertise"},
		{0, map[embed.MemberID]string{7: "s-0.s:7400"}, "ID is 0 or left out: say which of the Members 7 this is, or give its own address in Advertise"},
		{0, from0, "Members has the id 0: ids begin at 1, so ordinals that begin at 0 need 1 added, in ID too"},
		{2, from0, "Members has the id 0: ids begin at 1, so ordinals that begin at 0 need 1 added, in ID too"},
		{huge, map[embed.MemberID]string{huge: "s-0.s:7400"}, fmt.Sprintf("Members has the id %d: the highest is %d, because who joins later is counted on from there", huge, 1<<62)},
		{huge, nil, fmt.Sprintf("ID is %d: the highest is %d, because who joins later is counted on from there", huge, 1<<62)},
	} {
		if err := (embed.Config{Dir: "x", ID: c.id, Members: c.members}).Validate(); err == nil || err.Error() != c.want {
			t.Errorf("%d of %v: got %v, want %s", c.id, c.members, err, c.want)
		}
	}
	if n := embedkit.Alone(t, t.TempDir(), inside.Seams{}); n.Status().Member != 1 {
		t.Errorf("a node alone is member %d, want 1", n.Status().Member)
	}
}

func TestStart_ReportsABadConfigAndTouchesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cfg := embed.Config{Dir: dir, ID: 2, Members: map[embed.MemberID]string{1: "127.0.0.1:1"}, MaxDataSize: 1 << 30}
	n, err := embed.Start(cfg)
	if n != nil || err == nil || !strings.Contains(err.Error(), cfg.Validate().Error()) {
		t.Errorf("got %v, want what Validate says: %v", err, cfg.Validate())
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was made: %v", err)
	}
}

func TestValidate_Accepts(t *testing.T) {
	three := map[embed.MemberID]string{1: "a.example:7400", 2: "[::1]:7400", 3: "10.0.0.3:https"}
	for name, c := range map[string]embed.Config{
		"a directory alone":          {Dir: "x"},
		"members and a bind address": {Dir: "x", ID: 2, Members: three, Listen: ":7400"},
		"slow ticks":                 {Dir: "x", Tick: 10 * time.Second},
		"long sessions":              {Dir: "x", MinSessionTimeout: time.Hour},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidate_TLSThatLetsStrangersIn(t *testing.T) {
	pool := x509.NewCertPool()
	certs := []tls.Certificate{{}}
	for want, c := range map[string]embed.TLS{
		"needs Certificates":      {Config: &tls.Config{RootCAs: pool, ClientCAs: pool}},
		"needs Certificates, ":    {Config: &tls.Config{Certificates: certs, RootCAs: pool}},
		"InsecureSkipVerify":      {Config: &tls.Config{Certificates: certs, RootCAs: pool, ClientCAs: pool, InsecureSkipVerify: true}},
		"both a Config and files": {Config: &tls.Config{Certificates: certs, RootCAs: pool, ClientCAs: pool}, CAFile: "ca.pem"},
	} {
		cfg := embed.Config{Dir: "x", ID: 1, Members: map[embed.MemberID]string{1: "127.0.0.1:7400"}, TLS: &c}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Start reports what every other member would refuse. Otherwise only their logs would say so.
func TestValidate_CertificateThatNobodyAccepts(t *testing.T) {
	ours := embedkit.NewAuthority(t, "ours")
	for _, c := range []struct {
		change func(*x509.Certificate)
		host   string
		want   []string // nothing if it is fine
	}{
		{func(*x509.Certificate) {}, "127.0.0.1", nil},
		{func(*x509.Certificate) {}, "127.0.0.2", []string{"TLS.CertFile", "is not for 127.0.0.2, the host at which the others reach this member"}},
		{func(c *x509.Certificate) { c.DNSNames = []string{"a.example"} }, "a.example", nil},
		{func(c *x509.Certificate) { c.DNSNames = []string{"*.example"} }, "a.example", nil},
		{func(c *x509.Certificate) { c.DNSNames = []string{"a.example"} }, "b.example", []string{"is not for b.example"}},
		{func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "127.0.0.1", []string{"TLS.CertFile", "expired at"}},
		{func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, "127.0.0.1", []string{"is not for both clients and servers"}},
		{func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }, "127.0.0.1", []string{"is not for both clients and servers"}},
		{func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }, "127.0.0.1", nil},
		{func(c *x509.Certificate) { c.ExtKeyUsage = nil }, "127.0.0.1", nil},
	} {
		cfg := embed.Config{Dir: "x", ID: 2, TLS: ours.Files(t, ours, c.change), Members: map[embed.MemberID]string{
			1: "127.0.0.9:7400", 2: net.JoinHostPort(c.host, "7400"),
		}}
		err := cfg.Validate()
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: got %v, want %q", c.host, err, c.want)
		}
		for _, w := range c.want {
			if !strings.Contains(fmt.Sprint(err), w) {
				t.Errorf("%s: got %v, want %q", c.host, err, w)
			}
		}
	}
}

// A program may run with a setting of Go under which package tls does not parse its certificate.
func TestValidate_CertificateNotParsed(t *testing.T) {
	t.Setenv("GODEBUG", "x509keypairleaf=0")
	ours := embedkit.NewAuthority(t, "ours")
	cfg := embed.Config{Dir: "x", ID: 1, Members: map[embed.MemberID]string{1: "127.0.0.1:7400"}}
	cfg.TLS = ours.Files(t, ours, func(*x509.Certificate) {})
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.TLS = ours.Files(t, ours, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("an expired certificate: %v", err)
	}
}

func TestValidate_TLSFilesLeftOut(t *testing.T) {
	cfg := embed.Config{Dir: "x", ID: 1, Members: map[embed.MemberID]string{1: "127.0.0.1:7400"}, TLS: &embed.TLS{}}
	want := "TLS.CertFile is missing\nTLS.KeyFile is missing\nTLS.CAFile is missing"
	if err := cfg.Validate(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestReadConfig_ReadsEveryField(t *testing.T) {
	got, err := embed.ReadConfig(strings.NewReader(`
dir: /data
id: 2
members: {1: "a:1", 2: "b:2"}
join: ["members:7400"]
advertise: "b:3"
name: pod-2
zone: north
observer: true
ephemeral: true
voters: 5
deadAfter: 1h
listen: ":2"
ensemble: orders
shards: 1
tls: {certFile: cert.pem, keyFile: key.pem, caFile: ca.pem}
tick: 20ms
requestTimeout: 3s
sessionTimeout: 5s
minSessionTimeout: 4s
maxSessionTimeout: 1m
maxDataSize: 4096
maxTreeSize: 1000000000
holdLevel: 1
slow: 2s
containerCheckInterval: 2s
superDigest: "root:xyz"
`))
	want := embed.Config{
		Dir: "/data", ID: 2, Members: map[embed.MemberID]string{1: "a:1", 2: "b:2"}, Listen: ":2", Ensemble: "orders", Shards: 1,
		Join: []string{"members:7400"}, Advertise: "b:3", Name: "pod-2", Zone: "north", Observer: true, Ephemeral: true, Voters: 5, DeadAfter: time.Hour,
		TLS:  &embed.TLS{CertFile: "cert.pem", KeyFile: "key.pem", CAFile: "ca.pem"},
		Tick: 20 * time.Millisecond, RequestTimeout: 3 * time.Second, SessionTimeout: 5 * time.Second, MinSessionTimeout: 4 * time.Second, MaxSessionTimeout: time.Minute,
		MaxDataSize: 4096, MaxTreeSize: 1000000000, ContainerCheckInterval: 2 * time.Second, SuperDigest: "root:xyz", HoldLevel: 1, Slow: 2 * time.Second,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	// A new field must be added above.
	fields := reflect.TypeOf(want)
	for i := range fields.NumField() {
		f := fields.Field(i)
		if f.Tag.Get("yaml") != "-" && reflect.ValueOf(want).Field(i).IsZero() {
			t.Errorf("field %s is not read here", f.Name)
		}
	}
}

func TestReadConfig_Refuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an unknown key":          {"dir: x\ntimeout: 3s\n", `line 2: there is no key "timeout"`},
		"an unknown key of tls":   {"tls: {cert: x}\n", `line 1: there is no key "cert" in tls`},
		"a key twice":             {"dir: x\ndir: y\n", `line 2: key "dir" is already on line 1`},
		"a member twice":          {"members: {1: a, 1: b}\n", `key "1" is already on line 1`},
		"a duration of no unit":   {"requestTimeout: 3x\n", "want a duration such as 50ms, not `3x`"},
		"a duration without unit": {"requestTimeout: 5000\n", "want a duration such as 50ms, not `5000`"},
		"members as a list":       {"members: [a, b]\n", `want members such as {1: "10.0.0.1:7400"}`},
		"a name for an id":        {"id: one\n", "want an id such as 1, not `one`"},
		"a fraction":              {"shards: 1.5\n", "want a whole number, not `1.5`"},
		"a second document":       {"dir: x\n---\ndir: y\n", "more than one document"},
		"nothing":                 {"", "it is empty"},
		"a list":                  {"- dir: x\n", "line 1: want keys with their values"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := embed.ReadConfig(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %+v, %v; want %q", got, err, c.want)
			}
		})
	}
}
