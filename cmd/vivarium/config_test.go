//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/audit"
	"github.com/vivarium-go/vivarium/embed/backup/schedule"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit/golden"
)

// Every problem of a config is reported at once, in the words of the file, and nothing starts.
func TestBadConfigs(t *testing.T) {
	var got strings.Builder
	for _, c := range []struct{ name, text string }{
		{"nothing", ""},
		{"not YAML", "dir: [data\ngateway: {}\n"},
		{"a list", "- dir: data\n"},
		{"two documents", "dir: data\n---\ndir: data\n"},
		{"neither dir nor gateway", "id: 1\n"},
		{"unknown keys", "dir: data\ndirectory: x\nDir: x\n-: x\ngateway:\n  listen: 127.0.0.1:0\n  port: 2181\n  tls:\n    cert: x\ntls: {config: x}\nlogger: x\n"},
		{"a key twice", "dir: a\ngateway: {listen: 127.0.0.1:0}\ndir: b\n"},
		{"a value in place of a section", "dir: data\ngateway: 127.0.0.1:2181\ntls: yes\n"},
		{"values of the wrong kind", "dir: [a]\nid: one\nmembers: [a, b]\ntick: 50\nrequestTimeout: soon\nshards: 1.5\ngateway:\n  listen: 127.0.0.1:0\n  frameSize: 1MB\n  words: srvr\n  tls:\n    clientCertRequired: maybe\n"},
		{"a member twice", "dir: data\nmembers: {1: \"a:1\", 1: \"b:1\"}\ngateway: {listen: 127.0.0.1:0}\n"},
		{"a secret that is not text", "dir: data\nsuperDigest: {secret: hunter2}\ngateway: {listen: 127.0.0.1:0}\n"},
		{"members", "dir: data\nid: 4\nmembers:\n  0: 10.0.0.1:7400\n  1: 10.0.0.1:7400\n  2: 10.0.0.2\n  3: :7400\nlisten: nowhere\ngateway: {listen: 127.0.0.1:0}\n"},
		{"members and no id", "dir: data\nmembers: {1: \"a:1\", 2: \"b:1\", 3: \"c:1\"}\ngateway: {listen: 127.0.0.1:0}\n"},
		{"ordinals", "dir: data\nid: 0\nmembers: {0: \"s-0:1\", 1: \"s-1:1\", 2: \"s-2:1\"}\ngateway: {listen: 127.0.0.1:0}\n"},
		{"bounds", "dir: data\nshards: 65\ntick: 1us\nrequestTimeout: -1s\nminSessionTimeout: 1s\nmaxSessionTimeout: 1ms\nmaxDataSize: -1\ncontainerCheckInterval: 1ns\ngateway:\n  listen: \"2181\"\n  frameSize: 1\n  outstanding: -1\n  writeTimeout: -1s\n  words: [srvr, dance]\n"},
		{"certificates", "dir: data\nid: 1\nmembers: {1: \"127.0.0.1:7400\"}\ntls: {certFile: no.crt, keyFile: no.key, caFile: no-ca.crt}\ngateway:\n  listen: 127.0.0.1:0\n  tls: {certFile: no.crt, keyFile: no.key}\n"},
		{"SASL", "dir: data\ngateway: {listen: 127.0.0.1:0, saslUsers: no-users}\n"},
		{"SASL that nobody has", "dir: data\ngateway: {listen: 127.0.0.1:0, requireSASL: true}\n"},
		{"an audit", "dir: data\ngateway: {listen: 127.0.0.1:0}\naudit: {size: -1, keep: -1, age: -1s}\n"},
		{"an admin", "dir: data\ngateway: {listen: 127.0.0.1:0}\nadmin: {listen: \"8080\", tls: {certFile: no.crt, keyFile: no.key}, hosts: [\"a:1\"]}\n"},
		{"sections without keys", "dir: data\ngateway: {listen: 127.0.0.1:0}\ntls:\nbackup:\n  # dir: backups\naudit: ~\n"},
		{"an audit in dir", "dir: data\ngateway: {listen: 127.0.0.1:0}\naudit: {dir: ./data}\n"},
		{"backups in dir", "dir: data\ngateway: {listen: 127.0.0.1:0}\nbackup: {dir: data/backups}\n"},
		{"an anchor", "dir: &d data\nid: *d\ngateway: {listen: 127.0.0.1:0}\n"},
	} {
		dir := t.TempDir()
		t.Chdir(dir)
		must(t, os.WriteFile("node.yaml", []byte(c.text), 0o644))
		code, stdout, stderr := vivarium("serve", "-config", "node.yaml")
		fmt.Fprintf(&got, "== %s\n%s-- %d\n%s%s", c.name, c.text, code, stdout, stderr)
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%s: it left %v, %v", c.name, entries, err)
		}
		if code != exitUsage || strings.Contains(stderr, "hunter2") {
			t.Errorf("%s: %d\n%s", c.name, code, stderr)
		}
	}
	golden.Check(t, filepath.Join(testdata, "configs.golden"), got.String())
	if code, _, stderr := vivarium("serve", "-config", "missing.yaml"); code != exitUsage || !strings.Contains(stderr, "missing.yaml: no such file") {
		t.Errorf("a file that is missing: %d, %s", code, stderr)
	}
}

func TestConfig_NameIsNoFormat(t *testing.T) {
	name := filepath.Join(t.TempDir(), "100%d.yaml")
	must(t, os.WriteFile(name, []byte("port: 1\n"), 0o644))
	if _, err := readConfig(name, embed.Config{}); err == nil || err.Error() != name+`: line 1: there is no key "port"` {
		t.Error(err)
	}
}

// testdata is the path of this package's testdata, also after a test has changed the working
// directory.
var testdata, _ = filepath.Abs("testdata")

const everyKey = `
dir: /data
id: 2
members: {1: "a:1", 2: "b:2"}
listen: ":2"
ensemble: orders
shards: 3
tls: {certFile: cert.pem, keyFile: key.pem, caFile: ca.pem, migrate: true}
tick: 20ms
requestTimeout: 3s
sessionTimeout: 5s
minSessionTimeout: 4s
maxSessionTimeout: 1m
maxDataSize: 4096
maxTreeSize: 1000000000
join: ["members:7400"]
advertise: "b:3"
name: pod-2
zone: north
observer: true
ephemeral: true
voters: 5
deadAfter: 1h
holdLevel: 1
slow: 2s
containerCheckInterval: 2s
superDigest: "root:xyz"
gateway:
  listen: ":2181"
  tls: {certFile: c, keyFile: k, clientCAFile: ca, clientCertRequired: true}
  connectionsPerAddress: 1
  connections: 2
  frameSize: 4096
  outstanding: 3
  watchBytes: 5000
  handshakes: 50
  watches: 60
  memory: 2000000
  writeTimeout: 4s
  firstFrame: 5s
  readOnly: true
  words: [srvr, ruok]
  advertise: "clients.test:2181"
  reconfig: true
  saslUsers: users
  requireSASL: true
audit: {dir: journal, size: 5000000, keep: 7, age: 9h}
backup: {dir: backups, every: 2h, keep: {hourly: 5, daily: 6, weekly: 7}}
admin: {listen: "127.0.0.1:8080", tls: {certFile: c, keyFile: k}, tokensFile: tokens, hosts: [shop.example], page: true, openProbes: true, zooKeeper: true}
`

func TestConfig_ReadsEveryKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.yaml")
	must(t, os.WriteFile(file, []byte(everyKey), 0o644))
	got, err := readConfig(file, embed.Config{})
	if err == nil || strings.Count(err.Error(), "\n") != 5 { // the files of tls, gateway.tls, saslUsers, admin.tls and admin.tokensFile do not exist
		t.Fatal(err)
	}
	want := config{
		Config: embed.Config{
			Dir: "/data", ID: 2, Members: map[embed.MemberID]string{1: "a:1", 2: "b:2"}, Listen: ":2", Ensemble: "orders", Shards: 3,
			Join: []string{"members:7400"}, Advertise: "b:3", Name: "pod-2", Zone: "north", Observer: true, Ephemeral: true, Voters: 5, DeadAfter: time.Hour,
			TLS:  &embed.TLS{CertFile: "cert.pem", KeyFile: "key.pem", CAFile: "ca.pem", Migrate: true},
			Tick: 20 * time.Millisecond, RequestTimeout: 3 * time.Second, SessionTimeout: 5 * time.Second, MinSessionTimeout: 4 * time.Second, MaxSessionTimeout: time.Minute,
			MaxDataSize: 4096, MaxTreeSize: 1000000000, ContainerCheckInterval: 2 * time.Second, SuperDigest: "root:xyz", HoldLevel: 1, Slow: 2 * time.Second,
		},
		Gateway: gateway.Config{
			Listen: ":2181", TLS: &gateway.TLS{CertFile: "c", KeyFile: "k", ClientCAFile: "ca", ClientCertRequired: true}, ConnectionsPerAddress: 1,
			Connections: 2, FrameSize: 4096, Outstanding: 3, WatchBytes: 5000, Handshakes: 50, Watches: 60, Memory: 2_000_000, WriteTimeout: 4 * time.Second, FirstFrame: 5 * time.Second, ReadOnly: true, Words: []string{"srvr", "ruok"},
			Advertise: "clients.test:2181", Reconfig: true, SASLUsers: "users", RequireSASL: true,
		},
		Journal: &audit.Config{Dir: "journal", Size: 5000000, Keep: 7, Age: 9 * time.Hour},
		Backup:  &schedule.Config{Dir: "backups", Every: 2 * time.Hour, Keep: schedule.Keep{Hourly: 5, Daily: 6, Weekly: 7}},
		Admin: &adminConfig{Listen: "127.0.0.1:8080", TLS: &adminTLS{CertFile: "c", KeyFile: "k"}, TokensFile: "tokens", Hosts: []string{"shop.example"},
			Page: true, OpenProbes: true, ZooKeeper: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	// A new key must be added above and to the documentation.
	doc, err := os.ReadFile(filepath.Join(filepath.Dir(testdata), "doc.go"))
	must(t, err)
	eachKey(reflect.ValueOf(want), "", "", func(key, field string, v reflect.Value) {
		if got := inKeys(errors.New(field)).Error(); "gateway."+got != key && "backup."+got != key && "audit."+got != key && "admin."+got != key && got != key {
			t.Errorf("an error says %s of %s", got, key)
		}
		if v.IsZero() {
			t.Errorf("%s is not read here", key)
		}
		if name := key[strings.LastIndex(key, ".")+1:]; !strings.Contains(string(doc), "\t"+name+":") && !strings.Contains(string(doc), " "+name+":") {
			t.Errorf("doc.go does not have %s", key)
		}
	})
}

// eachKey calls fn for every key that a file may have, with the field that Validate names.
func eachKey(v reflect.Value, inFile, inGo string, fn func(key, field string, v reflect.Value)) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		switch key := f.Tag.Get("yaml"); {
		case f.Anonymous:
			eachKey(value, inFile, inGo, fn)
		case key == "-":
		case key == "gateway", key == "backup", key == "audit", key == "admin": // their Validate does not name itself
			eachKey(reflect.Indirect(value), inFile+key+".", inGo, fn)
		case value.Kind() == reflect.Struct:
			eachKey(value, inFile+key+".", inGo+f.Name+".", fn)
		case value.Kind() == reflect.Pointer:
			eachKey(value.Elem(), inFile+key+".", inGo+f.Name+".", fn)
		default:
			fn(inFile+key, inGo+f.Name, value)
		}
	}
}

// A config for embed.ReadConfig is accepted here too, and means the same.
func TestConfig_IsThatOfEmbed(t *testing.T) {
	text, _, _ := strings.Cut(everyKey, "gateway:")
	want, err := embed.ReadConfig(strings.NewReader(text))
	must(t, err)
	file := filepath.Join(t.TempDir(), "node.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o644))
	if got, _ := readConfig(file, embed.Config{}); !reflect.DeepEqual(got.Config, want) {
		t.Errorf("got %+v, want %+v", got.Config, want)
	}
}
